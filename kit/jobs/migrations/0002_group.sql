-- +goose Up
-- Whom a job is for, where the workers of its queue are shared fairly.
ALTER TABLE jobs ADD COLUMN job_group TEXT NOT NULL DEFAULT '';
-- +goose Down
ALTER TABLE jobs DROP COLUMN job_group;
