-- +goose Up

-- Refused events are kept whole, so that they can be sent again. Of those that were
-- refused before, only the beginning of the payload is there (whole is false).
ALTER TABLE refused_events ADD COLUMN headers TEXT NOT NULL DEFAULT '{}';
ALTER TABLE refused_events ADD COLUMN event_time BIGINT NOT NULL DEFAULT 0;
ALTER TABLE refused_events ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE refused_events ADD COLUMN whole BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX refused_events_event_id ON refused_events (event_id);

-- +goose Down
DROP INDEX refused_events_event_id;
ALTER TABLE refused_events DROP COLUMN whole;
ALTER TABLE refused_events DROP COLUMN bytes;
ALTER TABLE refused_events DROP COLUMN event_time;
ALTER TABLE refused_events DROP COLUMN headers;
