-- +goose Up

-- What a VM's process was started with (JSON), while that differs from what is wanted by now; null: it does not.
ALTER TABLE vms ADD COLUMN running TEXT NOT NULL DEFAULT 'null';

-- What is counted against limits: the larger of what a VM's process has and of what is wanted.
ALTER TABLE vms ADD COLUMN counted_vcpus BIGINT NOT NULL DEFAULT 0;
ALTER TABLE vms ADD COLUMN counted_memory_mib BIGINT NOT NULL DEFAULT 0;
UPDATE vms SET counted_vcpus = vcpus, counted_memory_mib = memory_mib;

-- What the VM's process had when a full snapshot was made (JSON); null: not known.
ALTER TABLE snapshots ADD COLUMN hardware TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE snapshots DROP COLUMN hardware;
ALTER TABLE vms DROP COLUMN counted_memory_mib;
ALTER TABLE vms DROP COLUMN counted_vcpus;
ALTER TABLE vms DROP COLUMN running;
