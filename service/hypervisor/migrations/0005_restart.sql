-- +goose Up

-- Whether a VM is to be started again once it has stopped.
ALTER TABLE vms ADD COLUMN restarting BOOLEAN NOT NULL DEFAULT FALSE;
