-- +goose Up

-- When a VM was last taken back from a migration. Migrations that were asked for before that do not go on.
ALTER TABLE vms ADD COLUMN taken_back_at BIGINT;
-- +goose Down
ALTER TABLE vms DROP COLUMN taken_back_at;
