-- +goose Up

ALTER TABLE backups ADD COLUMN base_id TEXT NOT NULL DEFAULT ''; -- of the snapshot base; empty: not known
