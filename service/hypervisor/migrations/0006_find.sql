-- +goose Up

-- What a search looks at (package search). The daemon writes it at its start for the rows of before.
ALTER TABLE vms ADD COLUMN search TEXT NOT NULL DEFAULT '';
ALTER TABLE images ADD COLUMN search TEXT NOT NULL DEFAULT '';

-- A search reads these alone, and not the settings of VMs. Only VMs of a tenant are seen by it.
CREATE INDEX vms_by_id ON vms (id, tenant, state, search);
CREATE INDEX vms_by_name ON vms (name, id, tenant, state, search);

-- +goose Down
DROP INDEX vms_by_name;
DROP INDEX vms_by_id;
ALTER TABLE images DROP COLUMN search;
ALTER TABLE vms DROP COLUMN search;
