-- +goose Up

-- Compliance scans of VMs, the last 50 of each. They go with the VM.
CREATE TABLE compliance_scans (
    id           TEXT PRIMARY KEY,
    vm_id        TEXT NOT NULL,
    vm_name      TEXT NOT NULL, -- when it began
    tenant       TEXT NOT NULL,
    profile_id   TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    status       TEXT NOT NULL, -- running, completed or failed
    passed       BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    skipped      BIGINT NOT NULL,
    findings     TEXT NOT NULL, -- JSON
    error        TEXT NOT NULL, -- why it failed
    started_at   BIGINT NOT NULL,
    completed_at BIGINT
);
CREATE UNIQUE INDEX compliance_scans_running ON compliance_scans (vm_id) WHERE status = 'running';
CREATE INDEX compliance_scans_by_tenant ON compliance_scans (tenant, id);
CREATE INDEX compliance_scans_by_vm ON compliance_scans (vm_id, id);
CREATE INDEX compliance_scans_by_name ON compliance_scans (vm_name, id);
-- +goose Down
DROP TABLE compliance_scans;
