-- +goose Up

-- How the last trial boot of a backup ended: empty (none yet), passed, failed or untried; when, and why.
ALTER TABLE backups ADD COLUMN boot TEXT NOT NULL DEFAULT '';
ALTER TABLE backups ADD COLUMN boot_error TEXT NOT NULL DEFAULT '';
ALTER TABLE backups ADD COLUMN booted_at BIGINT;
CREATE INDEX backups_booted ON backups (booted_at);
-- +goose Down
DROP INDEX backups_booted;
ALTER TABLE backups DROP COLUMN booted_at;
ALTER TABLE backups DROP COLUMN boot_error;
ALTER TABLE backups DROP COLUMN boot;
