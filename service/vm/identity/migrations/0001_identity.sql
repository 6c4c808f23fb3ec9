-- +goose Up

-- Who may sign in. Accounts of the host have a row from their first login on, or from when an admin
-- assigned them a role or a tenant.
CREATE TABLE accounts (
    id            TEXT PRIMARY KEY,
    username      TEXT NOT NULL UNIQUE,
    source        TEXT NOT NULL,            -- local or pam
    role          TEXT NOT NULL,            -- pam: what an admin assigned, or empty
    host_role     TEXT NOT NULL,            -- pam: what the groups gave when the host was last asked
    host_seen_at  BIGINT,                   -- pam: when that was
    tenant        TEXT NOT NULL,            -- empty: all tenants
    password_hash TEXT NOT NULL,            -- local: argon2id
    epoch         TEXT NOT NULL,            -- tokens of another epoch are over
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL
);
CREATE INDEX accounts_tenant ON accounts (tenant, username);

-- Second factors. One that is not enabled was set up and not yet verified.
CREATE TABLE second_factors (
    account_id TEXT PRIMARY KEY,
    secret     TEXT NOT NULL,               -- sealed for the account's id
    enabled    BOOLEAN NOT NULL,
    last_step  BIGINT NOT NULL,             -- of the last code that was used
    recovery   TEXT NOT NULL,               -- JSON: hashes of the recovery codes that are left
    created_at BIGINT NOT NULL
);

-- Tokens that were revoked before they expired.
CREATE TABLE revoked_tokens (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX revoked_tokens_account ON revoked_tokens (account_id);
CREATE INDEX revoked_tokens_expires_at ON revoked_tokens (expires_at);

-- Failed attempts to sign in, and those in progress. No more than the limit in all.
CREATE TABLE login_attempts (
    id       TEXT PRIMARY KEY,
    username TEXT NOT NULL,                 -- in lower case; empty once the user has succeeded
    pending  BOOLEAN NOT NULL,
    at       BIGINT NOT NULL
);
CREATE INDEX login_attempts_at ON login_attempts (at);

-- Rows that replicas lock: one for changes that count attempts, one for those that count admins.
CREATE TABLE identity_locks (name TEXT PRIMARY KEY);
INSERT INTO identity_locks (name) VALUES ('attempts');
INSERT INTO identity_locks (name) VALUES ('admins');

-- +goose Down
DROP TABLE identity_locks;
DROP TABLE login_attempts;
DROP TABLE revoked_tokens;
DROP TABLE second_factors;
DROP TABLE accounts;
