-- +goose Up

-- Copies of volumes in buckets. They stay when the volume is gone.
CREATE TABLE backups (
    id             TEXT PRIMARY KEY,
    tenant         TEXT NOT NULL,
    volume_id      TEXT NOT NULL,
    volume_name    TEXT NOT NULL, -- that it had
    bucket_id      TEXT NOT NULL, -- which may be gone: then this goes, too
    object_key     TEXT NOT NULL,
    mode           TEXT NOT NULL,
    state          TEXT NOT NULL,
    whole          BOOLEAN NOT NULL, -- all was to be uploaded
    incremental    BOOLEAN NOT NULL,
    full_reason    TEXT NOT NULL,
    parent         TEXT NOT NULL,
    size_bytes     BIGINT NOT NULL,
    stored_bytes   BIGINT NOT NULL,
    checksum       TEXT NOT NULL,
    key_ref        TEXT NOT NULL, -- the entry of the settings with the key; empty: not encrypted
    consistency    TEXT NOT NULL,
    repository_id  TEXT NOT NULL, -- its id in the repository; empty: it is not there, or has no data
    base           TEXT NOT NULL, -- the native name of the snapshot that the next one is compared with; empty: none
    keep           BIGINT NOT NULL, -- remove older ones than so many when this one is complete; 0: none
    last_error     TEXT NOT NULL,
    verified_by    TEXT NOT NULL, -- the method of the newest check; empty: none
    verified_ok    BOOLEAN NOT NULL,
    verified_what  TEXT NOT NULL,
    verified_job   TEXT NOT NULL,
    verified_at    BIGINT,
    created_at     BIGINT NOT NULL,
    finished_at    BIGINT,
    expires_at     BIGINT
);
CREATE INDEX backups_by_tenant ON backups (tenant, id);
CREATE INDEX backups_by_volume ON backups (volume_id, id);
CREATE INDEX backups_by_bucket ON backups (bucket_id, id);
CREATE INDEX backups_by_expiry ON backups (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX backups_with_base ON backups (volume_id) WHERE base <> '';
CREATE UNIQUE INDEX backups_by_repository ON backups (bucket_id, repository_id) WHERE repository_id <> '';

-- +goose Down
DROP TABLE backups;
