-- +goose Up

-- Who began an operation, and with which request (kit/operation).
ALTER TABLE operations ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN idempotency_key TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN request_sha256 TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX operations_by_key ON operations (idempotency_key) WHERE idempotency_key <> '';
