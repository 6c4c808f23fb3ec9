-- +goose Up

-- Backups. Those that are completed are in the repository under repo_id.
CREATE TABLE backups (
    id              TEXT PRIMARY KEY,
    vm_id           TEXT NOT NULL,
    vm_name         TEXT NOT NULL, -- when it was made
    tenant          TEXT NOT NULL,
    kind            TEXT NOT NULL, -- full or incremental: what was read
    status          TEXT NOT NULL,
    description     TEXT NOT NULL,
    policy_id       TEXT NOT NULL, -- empty: somebody asked for it
    repo_id         TEXT NOT NULL, -- empty until it is completed
    driver_id       TEXT NOT NULL, -- the VM's id at the daemon, to which the checkpoint belongs
    checkpoint      TEXT NOT NULL, -- of the daemon, from which the next backup continues; empty: none
    size_bytes      BIGINT NOT NULL,
    disk_bytes      BIGINT NOT NULL,
    read_bytes      BIGINT NOT NULL,
    consistency     TEXT NOT NULL,
    retention_days  BIGINT NOT NULL,
    error           TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    finished_at     BIGINT,
    expires_at      BIGINT,
    protected_until BIGINT,
    verified_at     BIGINT
);
CREATE UNIQUE INDEX backups_unfinished ON backups (vm_id) WHERE status IN ('pending', 'running');
CREATE UNIQUE INDEX backups_by_repo ON backups (repo_id) WHERE repo_id <> '';
CREATE INDEX backups_by_tenant ON backups (tenant, id);
CREATE INDEX backups_by_vm ON backups (vm_id, id);
CREATE INDEX backups_by_name ON backups (vm_name, id);
CREATE INDEX backups_expiring ON backups (expires_at) WHERE expires_at IS NOT NULL;

-- When which VMs are backed up.
CREATE TABLE backup_policies (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL, -- whose VMs; empty: those of all tenants
    name        TEXT NOT NULL,
    spec        TEXT NOT NULL,
    enabled     BOOLEAN NOT NULL,
    created_at  BIGINT NOT NULL,
    next_run_at BIGINT,
    last_run_at BIGINT,
    last_result TEXT NOT NULL,
    UNIQUE (tenant, name)
);

ALTER TABLE operations ADD COLUMN backup_id TEXT NOT NULL DEFAULT '';
ALTER TABLE tenants ADD COLUMN max_backup_bytes BIGINT;
-- +goose Down
ALTER TABLE tenants DROP COLUMN max_backup_bytes;
ALTER TABLE operations DROP COLUMN backup_id;
DROP TABLE backup_policies;
DROP TABLE backups;
