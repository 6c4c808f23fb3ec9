-- +goose Up

-- Who owns VMs, and how much of everything their VMs may have together.
CREATE TABLE tenants (
    name          TEXT PRIMARY KEY,
    description   TEXT NOT NULL,
    max_vms       BIGINT, -- of each limit: NULL means that there is none
    max_cpus      BIGINT,
    max_memory    BIGINT, -- MiB
    max_disk      BIGINT, -- GiB
    max_snapshots BIGINT,
    created_at    BIGINT NOT NULL
);

-- The VMs. A row with deleted_at is a VM that nobody sees any more, and that the hypervisor daemon
-- still has to remove.
CREATE TABLE vms (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    tenant        TEXT NOT NULL, -- empty: of no tenant
    spec          TEXT NOT NULL, -- what the daemon is asked for
    labels        TEXT NOT NULL,
    tags          TEXT NOT NULL,
    description   TEXT NOT NULL,
    cpus          BIGINT NOT NULL,
    memory        BIGINT NOT NULL, -- MiB
    disk          BIGINT NOT NULL, -- GiB; 0 until the daemon has told
    pending       TEXT NOT NULL, -- fields whose change waits for the next start
    state         TEXT NOT NULL,
    unreachable   BOOLEAN NOT NULL,
    autostart     BOOLEAN NOT NULL,
    protected     BOOLEAN NOT NULL,
    node          TEXT NOT NULL,   -- the host, in a fleet
    driver_id     TEXT NOT NULL,   -- the VM's id at the daemon; empty: not made yet
    driver_gen    BIGINT NOT NULL, -- the daemon's generation of what was last seen
    ips           TEXT NOT NULL,
    mac           TEXT NOT NULL,
    agent         TEXT NOT NULL,
    last_error    TEXT NOT NULL,
    snapshot_id   TEXT NOT NULL, -- the snapshot that the disk stands on; empty: none
    secret        TEXT NOT NULL, -- the settings for cloud-init, sealed, until the daemon has them
    search        TEXT NOT NULL,
    events        BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    started_at    BIGINT,
    deleted_at    BIGINT
);
CREATE UNIQUE INDEX vms_by_name ON vms (tenant, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX vms_by_driver ON vms (node, driver_id) WHERE driver_id <> '';
CREATE INDEX vms_named ON vms (name);
CREATE INDEX vms_deleted ON vms (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE vm_tags (
    vm_id TEXT NOT NULL,
    tag   TEXT NOT NULL,
    PRIMARY KEY (vm_id, tag)
);
CREATE INDEX vm_tags_by_tag ON vm_tags (tag, vm_id);

-- What happened to a VM, the last 1,000 things.
CREATE TABLE events (
    vm_id   TEXT NOT NULL,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    kind    TEXT NOT NULL,
    message TEXT NOT NULL,
    actor   TEXT NOT NULL,
    PRIMARY KEY (vm_id, seq)
);

-- Snapshots, which the daemon keeps under their ids.
CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    vm_id       TEXT NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    description TEXT NOT NULL,
    parent_id   TEXT NOT NULL, -- empty: none
    size_bytes  BIGINT NOT NULL,
    ready       BOOLEAN NOT NULL, -- the daemon has it
    created_at  BIGINT NOT NULL,
    UNIQUE (vm_id, name)
);

-- What a job is about.
ALTER TABLE operations ADD COLUMN vm_id TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN vm_name TEXT NOT NULL DEFAULT '';
CREATE INDEX operations_by_vm ON operations (vm_id);
-- +goose Down
DROP TABLE snapshots;
DROP TABLE events;
DROP TABLE vm_tags;
DROP TABLE vms;
DROP TABLE tenants;
