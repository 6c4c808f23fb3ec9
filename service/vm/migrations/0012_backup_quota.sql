-- +goose Up

-- What the backups of a tenant need in the repository, as the last prune has found it, and when that was.
ALTER TABLE tenants ADD COLUMN backup_needs BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN backup_needs_at BIGINT;
-- +goose Down
ALTER TABLE tenants DROP COLUMN backup_needs_at;
ALTER TABLE tenants DROP COLUMN backup_needs;
