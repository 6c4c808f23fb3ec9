-- +goose Up

-- Volumes of which snapshots are taken at the same moment.
CREATE TABLE volume_groups (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    cluster_id TEXT NOT NULL REFERENCES clusters (id),
    pool_id    TEXT NOT NULL REFERENCES pools (id), -- where the storage system has the group
    created_at BIGINT NOT NULL,
    UNIQUE (tenant, name)
);
CREATE INDEX volume_groups_by_tenant ON volume_groups (tenant, id);

CREATE TABLE volume_group_members (
    group_id  TEXT NOT NULL REFERENCES volume_groups (id),
    volume_id TEXT NOT NULL UNIQUE REFERENCES volumes (id),
    position  BIGINT NOT NULL,
    PRIMARY KEY (group_id, volume_id)
);

CREATE TABLE group_snapshots (
    id         TEXT PRIMARY KEY,
    group_id   TEXT NOT NULL REFERENCES volume_groups (id),
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    state      TEXT NOT NULL,
    members    BIGINT NOT NULL, -- how many volumes it is of
    last_error TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (group_id, name)
);
CREATE INDEX group_snapshots_by_tenant ON group_snapshots (tenant);

-- +goose Down
DROP TABLE group_snapshots;
DROP TABLE volume_group_members;
DROP TABLE volume_groups;
