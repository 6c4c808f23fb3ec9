-- +goose Up

-- The clusters that volumes can be mirrored to.
CREATE TABLE peers (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    cluster_id TEXT NOT NULL REFERENCES clusters (id), -- at this site
    remote_id  TEXT NOT NULL,                          -- the cluster at the other site; empty: the gateway does not know it
    fsid       TEXT NOT NULL,                          -- of the other cluster
    one_way    BOOLEAN NOT NULL,                       -- volumes are only copied from there
    secret_ref TEXT NOT NULL,                          -- the entry of the settings with its token
    state      TEXT NOT NULL,
    last_error TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (cluster_id, fsid)
);

-- Volumes that are mirrored: a row for each site that the gateway knows.
CREATE TABLE mirrors (
    id         TEXT PRIMARY KEY,
    volume_id  TEXT NOT NULL UNIQUE REFERENCES volumes (id),
    tenant     TEXT NOT NULL,
    cluster_id TEXT NOT NULL REFERENCES clusters (id),
    peer_id    TEXT NOT NULL, -- empty: not known
    mode       TEXT NOT NULL,
    state      TEXT NOT NULL,
    role       TEXT NOT NULL,
    global_id  TEXT NOT NULL, -- the same at all sites; empty until mirroring was enabled
    rpo_secs   BIGINT NOT NULL,
    health     TEXT NOT NULL,
    sites      TEXT NOT NULL, -- JSON: what the daemons say
    synced_at  BIGINT,        -- the moment that the copy is of; NULL: not known
    sent_at    BIGINT,        -- when changes were last sent; NULL: never
    seen_at    BIGINT,        -- when the storage system last told it; NULL: never
    rehearsal  TEXT NOT NULL, -- JSON
    last_error TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX mirrors_by_tenant ON mirrors (tenant, id);
CREATE INDEX mirrors_by_cluster ON mirrors (cluster_id, id);
CREATE INDEX mirrors_by_image ON mirrors (global_id);

-- +goose Down
DROP TABLE mirrors;
DROP TABLE peers;
