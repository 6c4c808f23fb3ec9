-- +goose Up

-- A snapshot is known before it is made and until it is removed, so that a daemon that is
-- killed meanwhile finds what it left in the disk: making, ready or removing.
ALTER TABLE snapshots ADD COLUMN state TEXT NOT NULL DEFAULT 'ready';

-- The full snapshot that a VM is being put back to; empty: none.
ALTER TABLE vms ADD COLUMN reverting TEXT NOT NULL DEFAULT '';
