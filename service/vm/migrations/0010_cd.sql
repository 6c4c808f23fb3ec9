-- +goose Up

-- The image in the VM's CD drive, as the daemon's catalog names it; empty: none.
ALTER TABLE vms ADD COLUMN cd TEXT NOT NULL DEFAULT '';
-- +goose Down
ALTER TABLE vms DROP COLUMN cd;
