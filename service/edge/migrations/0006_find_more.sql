-- +goose Up

-- What a search looks at, as in 0005. The service describes the rows of before this migration in the
-- background: there are few, compared with sites and devices.
ALTER TABLE routes ADD COLUMN search TEXT NOT NULL DEFAULT '';
ALTER TABLE deployments ADD COLUMN search TEXT NOT NULL DEFAULT '';
ALTER TABLE campaigns ADD COLUMN search TEXT NOT NULL DEFAULT '';
CREATE INDEX routes_to_describe ON routes (id) WHERE search = '';
CREATE INDEX deployments_to_describe ON deployments (id) WHERE search = '';
CREATE INDEX campaigns_to_describe ON campaigns (id) WHERE search = '';

-- Deliveries change none of these columns.
DROP INDEX routes_by_org;
CREATE INDEX routes_by_id ON routes (id, enabled, search);
CREATE INDEX routes_by_name ON routes (name, id, enabled, search);
CREATE INDEX routes_by_change ON routes (updated_at, id, enabled, search);
CREATE INDEX routes_by_org ON routes (org_id, id, enabled, search);
CREATE INDEX routes_by_org_name ON routes (org_id, name, id, enabled, search);
CREATE INDEX routes_by_org_change ON routes (org_id, updated_at, id, enabled, search);

-- A report of an agent changes the status, and no other of these columns, so it writes as many indexes
-- as before.
DROP INDEX deployments_by_org;
DROP INDEX deployments_by_status;
CREATE INDEX deployments_by_id ON deployments (id, site_id, search);
CREATE INDEX deployments_by_label ON deployments (name, id, site_id, search);
CREATE INDEX deployments_by_org ON deployments (org_id, id, site_id, search);
CREATE INDEX deployments_by_org_label ON deployments (org_id, name, id, site_id, search);
CREATE INDEX deployments_by_status ON deployments (status, id, org_id, site_id, name, search);

-- The targets of a campaign can be long, and are not to be read to find it.
DROP INDEX campaigns_by_org;
CREATE INDEX campaigns_by_id ON campaigns (id, search);
CREATE INDEX campaigns_by_name ON campaigns (name, id, search);
CREATE INDEX campaigns_by_org ON campaigns (org_id, id, search);
CREATE INDEX campaigns_by_org_name ON campaigns (org_id, name, id, search);

-- A report on an update wrote this index before, too.
DROP INDEX devices_by_ota;
CREATE INDEX devices_by_ota ON devices (ota_state, device_id, org_id, search);

-- +goose Down
DROP INDEX devices_by_ota;
CREATE INDEX devices_by_ota ON devices (ota_state, device_id);
DROP INDEX campaigns_by_org_name;
DROP INDEX campaigns_by_org;
DROP INDEX campaigns_by_name;
DROP INDEX campaigns_by_id;
DROP INDEX campaigns_to_describe;
CREATE INDEX campaigns_by_org ON campaigns (org_id, id);
DROP INDEX deployments_by_status;
DROP INDEX deployments_by_org_label;
DROP INDEX deployments_by_org;
DROP INDEX deployments_by_label;
DROP INDEX deployments_by_id;
DROP INDEX deployments_to_describe;
CREATE INDEX deployments_by_status ON deployments (status, id);
CREATE INDEX deployments_by_org ON deployments (org_id, id);
DROP INDEX routes_by_org_change;
DROP INDEX routes_by_org_name;
DROP INDEX routes_by_org;
DROP INDEX routes_by_change;
DROP INDEX routes_by_name;
DROP INDEX routes_by_id;
DROP INDEX routes_to_describe;
CREATE INDEX routes_by_org ON routes (org_id, id);
ALTER TABLE campaigns DROP COLUMN search;
ALTER TABLE deployments DROP COLUMN search;
ALTER TABLE routes DROP COLUMN search;
