-- +goose Up

-- The disks of a VM beside its system disk (JSON), and the medium of its CD drive (JSON; null: none).
ALTER TABLE vms ADD COLUMN disks TEXT NOT NULL DEFAULT '[]';
ALTER TABLE vms ADD COLUMN cd TEXT NOT NULL DEFAULT 'null';

-- The ids of the disks beside the system disk that a snapshot holds (JSON).
ALTER TABLE snapshots ADD COLUMN disks TEXT NOT NULL DEFAULT '[]';

-- The names of the disks that a VM had beside the one that was backed up (JSON).
ALTER TABLE backups ADD COLUMN left_out TEXT NOT NULL DEFAULT '[]';

-- +goose Down
ALTER TABLE backups DROP COLUMN left_out;
ALTER TABLE snapshots DROP COLUMN disks;
ALTER TABLE vms DROP COLUMN cd;
ALTER TABLE vms DROP COLUMN disks;
