-- +goose Up
-- A stable word for why a job failed.
ALTER TABLE jobs ADD COLUMN error_code TEXT NOT NULL DEFAULT '';
-- +goose Down
ALTER TABLE jobs DROP COLUMN error_code;
