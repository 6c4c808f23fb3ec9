-- +goose Up
CREATE TABLE jobs (
    id               TEXT PRIMARY KEY,
    queue            TEXT NOT NULL,
    kind             TEXT NOT NULL,
    args             TEXT NOT NULL,
    state            TEXT NOT NULL,
    attempt          BIGINT NOT NULL,
    max_attempts     BIGINT NOT NULL,
    run_at           BIGINT NOT NULL,
    lease_until      BIGINT,
    worker           TEXT NOT NULL,
    progress_done    BIGINT NOT NULL,
    progress_total   BIGINT NOT NULL,
    error            TEXT NOT NULL,
    unique_key       TEXT NOT NULL,
    cancel_requested BOOLEAN NOT NULL,
    created_at       BIGINT NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT
);
CREATE INDEX jobs_to_claim ON jobs (queue, run_at, id) WHERE state = 'available';
CREATE INDEX jobs_by_lease ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique ON jobs (kind, unique_key) WHERE unique_key <> '' AND state IN ('available', 'running');
CREATE TABLE job_queues (
    name   TEXT PRIMARY KEY,
    paused BOOLEAN NOT NULL
);
-- +goose Down
DROP TABLE job_queues;
DROP TABLE jobs;
