-- +goose Up

-- What a VM was started with for this start only (JSON), while it has a process; null: nothing.
ALTER TABLE vms ADD COLUMN started_with TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE vms DROP COLUMN started_with;
