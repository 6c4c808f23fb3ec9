-- +goose Up

-- VMs that came from other hosts of the fleet, or are on their way. A row stays when it is over, since
-- the other host may ask again.
CREATE TABLE arrivals (
    id         TEXT PRIMARY KEY, -- of the migration
    vm_id      TEXT NOT NULL,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    node       TEXT NOT NULL,    -- where it comes from
    state      TEXT NOT NULL,    -- receiving, prepared, committed or aborted
    created_at BIGINT NOT NULL,
    ended_at   BIGINT
);
CREATE INDEX arrivals_by_vm ON arrivals (vm_id, created_at);
CREATE INDEX arrivals_by_state ON arrivals (state, created_at);

-- The migration by which a VM was handed over to another host that has not confirmed yet (JSON); null: none.
ALTER TABLE vms ADD COLUMN handed_over TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE vms DROP COLUMN handed_over;
DROP TABLE arrivals;
