-- +goose Up

-- Security groups and network policies. The tenant * is every tenant.
CREATE TABLE network_groups (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    document   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX network_groups_named ON network_groups (name);
CREATE TABLE network_policies (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    document   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX network_policies_named ON network_policies (name);

-- VMs' own policies.
CREATE TABLE vm_policies (
    vm_id      TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- What the hypervisor daemon has of the policies. A VM that never had one has no row.
CREATE TABLE vm_policy_states (
    vm_id      TEXT PRIMARY KEY,
    hash       TEXT NOT NULL,    -- of the document that the daemon has; empty: none
    revision   BIGINT NOT NULL,  -- the daemon's of it
    mode       TEXT NOT NULL,    -- enforced, none or unsupported
    error      TEXT NOT NULL,    -- why the last attempt to apply failed; empty: it did not
    applied_at BIGINT            -- when the daemon took the document
);

-- Identities: numbers of sets of labels within a tenant, and of networks that policies name.
CREATE TABLE network_identities (
    number     BIGINT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    kind       TEXT NOT NULL, -- labels or network
    labels     TEXT NOT NULL, -- JSON, or the network
    created_at BIGINT NOT NULL,
    UNIQUE (tenant, kind, labels)
);

-- One row, which changes to groups, policies and identities lock, so that they see each other. Numbers
-- of identities are not used again.
CREATE TABLE network_numbers (
    id            BIGINT PRIMARY KEY,
    next_identity BIGINT NOT NULL,
    next_network  BIGINT NOT NULL
);
INSERT INTO network_numbers (id, next_identity, next_network) VALUES (1, 256, 16777216);
-- +goose Down
DROP TABLE network_numbers;
DROP TABLE network_identities;
DROP TABLE vm_policy_states;
DROP TABLE vm_policies;
DROP TABLE network_policies;
DROP TABLE network_groups;
