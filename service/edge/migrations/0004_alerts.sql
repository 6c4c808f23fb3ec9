-- +goose Up

-- Alerts as package kit/alert has them: people acknowledge, silence and resolve them.
ALTER TABLE alerts ADD COLUMN resolved_by TEXT NOT NULL DEFAULT '';
ALTER TABLE alerts ADD COLUMN acknowledged_at BIGINT;
ALTER TABLE alerts ADD COLUMN acknowledged_by TEXT NOT NULL DEFAULT '';
ALTER TABLE alerts ADD COLUMN acknowledge_note TEXT NOT NULL DEFAULT '';
CREATE TABLE alert_silences (
    kind            TEXT NOT NULL,
    subject         TEXT NOT NULL,
    silenced_until  BIGINT NOT NULL,
    silenced_by     TEXT NOT NULL,
    silence_reason  TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
);

-- +goose Down
DROP TABLE alert_silences;
ALTER TABLE alerts DROP COLUMN acknowledge_note;
ALTER TABLE alerts DROP COLUMN acknowledged_by;
ALTER TABLE alerts DROP COLUMN acknowledged_at;
ALTER TABLE alerts DROP COLUMN resolved_by;
