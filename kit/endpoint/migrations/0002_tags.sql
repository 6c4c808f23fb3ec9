-- +goose Up
-- JSON: an endpoint gets only events with one of these; null or none: all.
ALTER TABLE webhook_endpoints ADD COLUMN tags TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE webhook_endpoints DROP COLUMN tags;
