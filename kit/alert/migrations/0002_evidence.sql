-- +goose Up
ALTER TABLE alerts ADD COLUMN evidence TEXT NOT NULL DEFAULT '';
-- +goose Down
ALTER TABLE alerts DROP COLUMN evidence;
