-- +goose Up

-- Who owns volumes, and how much of everything their volumes may have together.
CREATE TABLE tenants (
    name          TEXT PRIMARY KEY,
    description   TEXT NOT NULL,
    max_volumes   BIGINT, -- of each limit: NULL means that there is none
    max_bytes     BIGINT, -- of volumes, by their sizes
    max_snapshots BIGINT,
    created_at    BIGINT NOT NULL
);

-- The storage systems that volumes are made in.
CREATE TABLE backends (
    id             TEXT PRIMARY KEY,
    name           TEXT NOT NULL UNIQUE,
    type           TEXT NOT NULL,
    mode           TEXT NOT NULL,
    connection_ref TEXT NOT NULL, -- the entry of the settings that says how to reach it
    cordoned       BOOLEAN NOT NULL,
    capabilities   TEXT NOT NULL, -- JSON, as it was last seen
    last_error     TEXT NOT NULL, -- why it could not be asked the last time; empty: it could
    discovered_at  BIGINT,        -- NULL: never
    created_at     BIGINT NOT NULL
);

-- What a storage system tells about itself.
CREATE TABLE clusters (
    id               TEXT PRIMARY KEY,
    backend_id       TEXT NOT NULL UNIQUE REFERENCES backends (id),
    native_id        TEXT NOT NULL UNIQUE, -- pinned when it was first seen
    name             TEXT NOT NULL,
    health           TEXT NOT NULL,
    summary          TEXT NOT NULL,
    raw_bytes        BIGINT NOT NULL,
    used_bytes       BIGINT NOT NULL,
    available_bytes  BIGINT NOT NULL,
    recovering       BOOLEAN NOT NULL,
    degraded_objects BIGINT NOT NULL,
    seen_at          BIGINT NOT NULL
);

CREATE TABLE pools (
    id           TEXT PRIMARY KEY,
    cluster_id   TEXT NOT NULL REFERENCES clusters (id),
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL,
    device_class TEXT NOT NULL,
    replicas     BIGINT NOT NULL,
    used_bytes   BIGINT NOT NULL,
    max_bytes    BIGINT NOT NULL,
    health       TEXT NOT NULL,
    missing      BOOLEAN NOT NULL, -- the storage system does not tell it any more
    UNIQUE (cluster_id, name)
);

CREATE TABLE osds (
    cluster_id     TEXT NOT NULL REFERENCES clusters (id),
    number         BIGINT NOT NULL,
    up             BOOLEAN NOT NULL,
    in_cluster     BOOLEAN NOT NULL,
    device_class   TEXT NOT NULL,
    host           TEXT NOT NULL,
    used_bytes     BIGINT NOT NULL,
    capacity_bytes BIGINT NOT NULL,
    weight         DOUBLE PRECISION, -- the part of its share that it holds, from 0 to 1; NULL: not known
    PRIMARY KEY (cluster_id, number)
);

-- What volumes are made of, by a name that says what they are for.
CREATE TABLE policies (
    name        TEXT PRIMARY KEY,
    description TEXT NOT NULL,
    backend_id  TEXT NOT NULL REFERENCES backends (id),
    pool        TEXT NOT NULL, -- empty: the backend's only one that holds such volumes
    kind        TEXT NOT NULL, -- of all volumes of the policy
    created_at  BIGINT NOT NULL
);

CREATE TABLE volumes (
    id             TEXT PRIMARY KEY,
    tenant         TEXT NOT NULL, -- empty: of no tenant
    name           TEXT NOT NULL,
    cluster_id     TEXT NOT NULL REFERENCES clusters (id),
    pool_id        TEXT NOT NULL REFERENCES pools (id),
    native         TEXT NOT NULL, -- its name in the pool
    kind           TEXT NOT NULL,
    policy         TEXT NOT NULL,
    state          TEXT NOT NULL,
    health         TEXT NOT NULL,
    asked_bytes    BIGINT NOT NULL, -- the size that it was created with
    size_bytes     BIGINT NOT NULL, -- what counts for the quota: the size, also while it grows
    used_bytes     BIGINT NOT NULL, -- negative: not known
    enforced       BOOLEAN NOT NULL,
    foreign_made   BOOLEAN NOT NULL, -- the gateway did not make it, and does not change it
    source_id      TEXT NOT NULL,    -- the snapshot that it was made of; empty: none
    owner          TEXT NOT NULL,    -- JSON
    owner_product  TEXT NOT NULL,
    owner_resource TEXT NOT NULL,
    last_error     TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    seen_at        BIGINT, -- when the storage system last told it
    deleted_at     BIGINT, -- it is removed: the row stays for what refers to it
    search         TEXT NOT NULL
);
CREATE UNIQUE INDEX volumes_by_name ON volumes (tenant, name) WHERE deleted_at IS NULL AND NOT foreign_made;
CREATE UNIQUE INDEX volumes_by_native ON volumes (pool_id, native) WHERE deleted_at IS NULL;
CREATE INDEX volumes_by_age ON volumes (id, search) WHERE deleted_at IS NULL;
CREATE INDEX volumes_by_tenant ON volumes (tenant, id, search) WHERE deleted_at IS NULL;
CREATE INDEX volumes_by_cluster ON volumes (cluster_id, id) WHERE deleted_at IS NULL;
CREATE INDEX volumes_by_owner ON volumes (owner_product, owner_resource, id) WHERE deleted_at IS NULL;
CREATE INDEX volumes_by_source ON volumes (source_id) WHERE source_id <> '' AND deleted_at IS NULL;

CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    volume_id   TEXT NOT NULL REFERENCES volumes (id),
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    native      TEXT NOT NULL,
    state       TEXT NOT NULL,
    size_bytes  BIGINT NOT NULL,
    used_bytes  BIGINT NOT NULL,
    consistency TEXT NOT NULL,
    last_error  TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    ready_at    BIGINT,
    deleted_at  BIGINT
);
CREATE INDEX snapshots_by_tenant ON snapshots (tenant, id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume_id, name) WHERE deleted_at IS NULL;

-- What each job is about (table operations of kit/operation).
ALTER TABLE operations ADD COLUMN resource_type TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN resource_id TEXT NOT NULL DEFAULT '';
CREATE INDEX operations_by_resource ON operations (resource_id, id);

-- +goose Down
DROP INDEX operations_by_resource;
ALTER TABLE operations DROP COLUMN resource_id;
ALTER TABLE operations DROP COLUMN resource_type;
DROP TABLE snapshots;
DROP TABLE volumes;
DROP TABLE policies;
DROP TABLE osds;
DROP TABLE pools;
DROP TABLE clusters;
DROP TABLE backends;
DROP TABLE tenants;
