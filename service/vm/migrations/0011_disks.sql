-- +goose Up

-- The disks of the VM beside its system disk, as the daemon tells them (JSON).
ALTER TABLE vms ADD COLUMN disks TEXT NOT NULL DEFAULT '[]';
-- Room that is kept for requests about disks whose outcome is not known yet (JSON).
ALTER TABLE vms ADD COLUMN disk_reservations TEXT NOT NULL DEFAULT '[]';
-- The GiB of both, which count for the quota beside those of the system disk.
ALTER TABLE vms ADD COLUMN data_disk INTEGER NOT NULL DEFAULT 0;
-- The names of the disks that a backup does not hold (JSON).
ALTER TABLE backups ADD COLUMN left_out TEXT NOT NULL DEFAULT '[]';
-- +goose Down
ALTER TABLE backups DROP COLUMN left_out;
ALTER TABLE vms DROP COLUMN data_disk;
ALTER TABLE vms DROP COLUMN disk_reservations;
ALTER TABLE vms DROP COLUMN disks;
