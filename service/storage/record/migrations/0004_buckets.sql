-- +goose Up

-- Buckets of object gateways: those that the gateway makes, and those that it was told of.
CREATE TABLE buckets (
    id             TEXT PRIMARY KEY,
    tenant         TEXT NOT NULL, -- empty: of no tenant
    name           TEXT NOT NULL,
    backend_id     TEXT NOT NULL, -- where it is made; empty: the gateway was told of it
    connection_ref TEXT NOT NULL, -- the entry of the settings that tells of it; empty: the gateway makes it
    native         TEXT NOT NULL, -- its name in the object gateway
    user_name      TEXT NOT NULL, -- its user there
    endpoint       TEXT NOT NULL,
    region         TEXT NOT NULL,
    secret         TEXT NOT NULL, -- the sealed keys of its user, with its id as additional data; empty: none
    max_objects    BIGINT NOT NULL, -- 0: no limit
    max_bytes      BIGINT NOT NULL, -- 0: no limit
    versioning     BOOLEAN NOT NULL,
    state          TEXT NOT NULL,
    made           BOOLEAN NOT NULL, -- it was bound once
    last_error     TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL
);
CREATE UNIQUE INDEX buckets_by_name ON buckets (tenant, name);
CREATE UNIQUE INDEX buckets_by_connection ON buckets (connection_ref) WHERE connection_ref <> '';
CREATE INDEX buckets_by_tenant ON buckets (tenant, id);
CREATE INDEX buckets_by_backend ON buckets (backend_id, id);

-- +goose Down
DROP TABLE buckets;
