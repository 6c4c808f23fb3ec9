-- +goose Up

-- What is asked for stands in spec; the other columns are what became of it, and what
-- lists are filtered and sums are made by.
CREATE TABLE vms (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    backend    TEXT NOT NULL,
    state      TEXT NOT NULL,
    spec       TEXT NOT NULL,
    base       TEXT NOT NULL, -- the content of the catalog that it stands on; empty: none
    disk_base  TEXT NOT NULL, -- the disk that it shares with linked clones; empty: none
    labels     TEXT NOT NULL,
    vcpus      BIGINT NOT NULL,
    memory_mib BIGINT NOT NULL,
    slot       BIGINT NOT NULL, -- which of the uids it runs as, counted from 0
    secret     TEXT NOT NULL,   -- the guest agent's, sealed
    mac        TEXT NOT NULL,
    tap        TEXT NOT NULL,
    ips        TEXT NOT NULL,
    autostart  BOOLEAN NOT NULL,
    generation BIGINT NOT NULL,
    last_error TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    expires_at BIGINT,
    kill_at    BIGINT, -- when a guest that was asked to shut down has had its time
    events     BIGINT NOT NULL,
    UNIQUE (tenant, name),
    UNIQUE (slot)
);
CREATE INDEX vms_by_expiry ON vms (expires_at);
CREATE INDEX vms_by_state ON vms (state, id);

CREATE TABLE events (
    vm_id   TEXT NOT NULL,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    kind    TEXT NOT NULL,
    message TEXT NOT NULL,
    actor   TEXT NOT NULL,
    PRIMARY KEY (vm_id, seq)
);

CREATE TABLE snapshots (
    vm_id        TEXT NOT NULL,
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL,
    description  TEXT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    secret       TEXT NOT NULL, -- the guest agent's in the memory that is kept, sealed
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (vm_id, name)
);

CREATE TABLE backups (
    id           TEXT PRIMARY KEY,
    vm_id        TEXT NOT NULL,
    vm_name      TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    parent_id    TEXT NOT NULL, -- empty for a full one
    bitmap       TEXT NOT NULL, -- what the VM's disk notes changes in since this backup
    description  TEXT NOT NULL,
    spec         TEXT NOT NULL, -- the VM's, to make one of it
    backend      TEXT NOT NULL,
    base         TEXT NOT NULL,
    size         BIGINT NOT NULL,
    virtual_size BIGINT NOT NULL,
    sha256       TEXT NOT NULL,
    created_at   BIGINT NOT NULL
);
CREATE INDEX backups_by_vm ON backups (vm_id, id);
CREATE INDEX backups_by_parent ON backups (parent_id);

-- Disks that linked clones share. A base may itself stand on another, or on a content.
CREATE TABLE bases (
    id      TEXT PRIMARY KEY,
    parent  TEXT NOT NULL,
    content TEXT NOT NULL
);

CREATE TABLE images (
    name            TEXT PRIMARY KEY,
    kind            TEXT NOT NULL, -- disk, kernel or rootfs
    source          TEXT NOT NULL,
    sha256          TEXT NOT NULL, -- of what was taken in, and its folder's name
    kernel_args     TEXT NOT NULL,
    size            BIGINT NOT NULL,
    virtual_size    BIGINT NOT NULL,
    signature_valid BOOLEAN,
    signed_at       BIGINT,
    read_only       BOOLEAN NOT NULL,
    locked          BOOLEAN NOT NULL,
    added_at        BIGINT NOT NULL
);
CREATE INDEX images_by_content ON images (sha256);

-- What a job (table jobs, same id) is about.
CREATE TABLE operations (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    vm_id      TEXT NOT NULL,
    backup_id  TEXT NOT NULL,
    image      TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE nodes (
    name         TEXT PRIMARY KEY,
    url          TEXT NOT NULL,
    version      TEXT NOT NULL,
    labels       TEXT NOT NULL,
    backends     TEXT NOT NULL,
    cordoned     BOOLEAN NOT NULL,
    vcpus        BIGINT NOT NULL,
    memory_mib   BIGINT NOT NULL,
    free_vcpus   BIGINT NOT NULL,
    free_memory_mib BIGINT NOT NULL,
    vms          BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL
);
