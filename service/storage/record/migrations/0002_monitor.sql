-- +goose Up

-- How full clusters were, in steps of a minute, an hour and a day: the last of each step, and its worst health.
CREATE TABLE capacity (
    cluster_id TEXT NOT NULL REFERENCES clusters (id),
    step       BIGINT NOT NULL, -- seconds
    at         BIGINT NOT NULL, -- when the step begins
    raw_bytes  BIGINT NOT NULL,
    used_bytes BIGINT NOT NULL,
    health     BIGINT NOT NULL, -- 0: ok, 1: warning, 2: error
    PRIMARY KEY (cluster_id, step, at)
);
CREATE INDEX capacity_by_age ON capacity (step, at);

-- When clusters are full if their use goes on growing as it did.
CREATE TABLE forecasts (
    cluster_id       TEXT PRIMARY KEY REFERENCES clusters (id),
    days             BIGINT NOT NULL,           -- that are known
    growth           DOUBLE PRECISION NOT NULL, -- bytes per day
    error            DOUBLE PRECISION NOT NULL, -- of growth, in 95 of 100 cases
    full_at          BIGINT,                    -- NULL: not within ten years, or too little is known
    full_earliest_at BIGINT
);

-- Whether jobs are started. There is one row at most.
CREATE TABLE maintenance (
    id     BIGINT PRIMARY KEY CHECK (id = 1),
    paused BOOLEAN NOT NULL,
    since  BIGINT NOT NULL,
    actor  TEXT NOT NULL
);

-- What is still to be told about alerts.
CREATE TABLE alert_notices (
    id         TEXT PRIMARY KEY,
    body       TEXT NOT NULL, -- JSON, as it is sent
    attempt    BIGINT NOT NULL,
    due_at     BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX alert_notices_by_due ON alert_notices (due_at, id);

-- +goose Down
DROP TABLE alert_notices;
DROP TABLE maintenance;
DROP TABLE forecasts;
DROP TABLE capacity;
