-- +goose Up

-- What is done at regular times, for a volume or for a group of volumes.
CREATE TABLE schedules (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    enabled    BOOLEAN NOT NULL,
    volume_id  TEXT NOT NULL, -- empty: it is for a group
    group_id   TEXT NOT NULL,
    bucket_id  TEXT NOT NULL,
    mode       TEXT NOT NULL,
    key_ref    TEXT NOT NULL,
    full_every BIGINT NOT NULL,
    every_secs BIGINT NOT NULL,
    first_at   BIGINT,
    keep       BIGINT NOT NULL,
    max_age    BIGINT NOT NULL, -- seconds
    created_at BIGINT NOT NULL,
    next_at    BIGINT,          -- NULL: it is disabled
    begun_at   BIGINT,          -- when a run began whose end is not stored yet
    last_at    BIGINT,
    last_job   TEXT NOT NULL,
    last_error TEXT NOT NULL,
    UNIQUE (tenant, name)
);
CREATE INDEX schedules_by_tenant ON schedules (tenant, id);
CREATE INDEX schedules_by_volume ON schedules (volume_id);
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;

-- The schedule that had it made; empty: none.
ALTER TABLE snapshots ADD COLUMN schedule_id TEXT NOT NULL DEFAULT '';
ALTER TABLE group_snapshots ADD COLUMN schedule_id TEXT NOT NULL DEFAULT '';
ALTER TABLE backups ADD COLUMN schedule_id TEXT NOT NULL DEFAULT '';
CREATE INDEX snapshots_by_schedule ON snapshots (schedule_id, id) WHERE schedule_id <> '' AND deleted_at IS NULL;
CREATE INDEX group_snapshots_by_schedule ON group_snapshots (schedule_id, id) WHERE schedule_id <> '';
CREATE INDEX backups_by_schedule ON backups (schedule_id, id) WHERE schedule_id <> '';

-- +goose Down
DROP INDEX backups_by_schedule;
DROP INDEX group_snapshots_by_schedule;
DROP INDEX snapshots_by_schedule;
ALTER TABLE backups DROP COLUMN schedule_id;
ALTER TABLE group_snapshots DROP COLUMN schedule_id;
ALTER TABLE snapshots DROP COLUMN schedule_id;
DROP TABLE schedules;
