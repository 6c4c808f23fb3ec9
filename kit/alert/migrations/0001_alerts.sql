-- +goose Up
CREATE TABLE alerts (
    id               TEXT PRIMARY KEY,
    kind             TEXT NOT NULL,
    severity         TEXT NOT NULL,
    status           TEXT NOT NULL, -- firing, resolved
    org_id           TEXT NOT NULL,
    site_id          TEXT NOT NULL,
    subject          TEXT NOT NULL,
    message          TEXT NOT NULL,
    first_seen_at    BIGINT NOT NULL,
    last_seen_at     BIGINT NOT NULL,
    resolved_at      BIGINT,
    resolved_by      TEXT NOT NULL, -- empty: by itself
    acknowledged_at  BIGINT,
    acknowledged_by  TEXT NOT NULL,
    acknowledge_note TEXT NOT NULL
);
CREATE UNIQUE INDEX alerts_firing ON alerts (kind, subject) WHERE status = 'firing';
CREATE INDEX alerts_by_kind ON alerts (kind, status);
CREATE INDEX alerts_by_org ON alerts (org_id, first_seen_at, id);
CREATE INDEX alerts_by_time ON alerts (first_seen_at, id);

-- A silence is of what alerts are about, so that it outlives the alert that somebody silenced.
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
DROP TABLE alerts;
