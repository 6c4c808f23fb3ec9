-- +goose Up

-- What a job (table jobs, same id) is, for those who follow it. A service adds columns of its own.
CREATE TABLE operations (
    id              TEXT PRIMARY KEY,
    kind            TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    actor           TEXT NOT NULL,
    idempotency_key TEXT NOT NULL, -- hashed with whose it is; empty: none
    request_sha256  TEXT NOT NULL, -- of what was asked for with the key
    created_at      BIGINT NOT NULL
);
CREATE UNIQUE INDEX operations_by_key ON operations (idempotency_key) WHERE idempotency_key <> '';
-- +goose Down
DROP TABLE operations;
