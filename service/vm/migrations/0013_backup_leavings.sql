-- +goose Up

-- What backups that were not finished have left in the repository, which counts for the quota until it is removed.
CREATE TABLE backup_leavings (
    id     TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    bytes  BIGINT NOT NULL,
    until  BIGINT NOT NULL
);
CREATE INDEX backup_leavings_by_tenant ON backup_leavings (tenant, until);
-- +goose Down
DROP TABLE backup_leavings;
