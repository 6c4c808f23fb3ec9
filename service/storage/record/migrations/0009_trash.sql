-- +goose Up

-- A volume in the trash has deleted_at and purge_at: its row stays, since it may come back.
ALTER TABLE volumes ADD COLUMN purge_at BIGINT; -- when it is removed for ever
ALTER TABLE volumes ADD COLUMN deleted_by TEXT NOT NULL DEFAULT '';
CREATE INDEX volumes_in_trash ON volumes (deleted_at, id) WHERE purge_at IS NOT NULL;
CREATE INDEX volumes_to_purge ON volumes (purge_at) WHERE purge_at IS NOT NULL;
