-- +goose Up

-- Names of tenants that were deleted. Jobs, usage, invoices and the audit log keep what was theirs, which must
-- not become another tenant's.
CREATE TABLE retired_tenants (
    name       TEXT PRIMARY KEY,
    retired_at BIGINT NOT NULL
);
-- +goose Down
DROP TABLE retired_tenants;
