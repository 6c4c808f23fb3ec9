-- +goose Up
CREATE TABLE webhook_endpoints (
    id              TEXT PRIMARY KEY,
    org_id          TEXT NOT NULL,
    description     TEXT NOT NULL,
    url             TEXT NOT NULL,
    format          TEXT NOT NULL, -- standard, slack, teams, discord
    events          TEXT NOT NULL, -- JSON: patterns
    enabled         BOOLEAN NOT NULL,
    disabled_reason TEXT NOT NULL,
    secret          TEXT NOT NULL, -- sealed; empty for chats
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX webhook_endpoints_by_org ON webhook_endpoints (org_id, id);

CREATE TABLE webhook_deliveries (
    id          TEXT PRIMARY KEY,
    endpoint_id TEXT NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    event       TEXT NOT NULL,
    body        TEXT NOT NULL,
    state       TEXT NOT NULL, -- pending, delivered, failed
    attempts    BIGINT NOT NULL,
    replays     BIGINT NOT NULL,
    tries       BIGINT NOT NULL, -- attempts since the last replay
    created_at  BIGINT NOT NULL,
    finished_at BIGINT
);
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint_id, id);
CREATE INDEX webhook_deliveries_by_end ON webhook_deliveries (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE webhook_attempts (
    delivery_id TEXT NOT NULL REFERENCES webhook_deliveries (id) ON DELETE CASCADE,
    number      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    status      BIGINT NOT NULL, -- 0: no answer
    problem     TEXT NOT NULL,   -- empty: none
    duration_us BIGINT NOT NULL,
    PRIMARY KEY (delivery_id, number)
);

-- +goose Down
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;
