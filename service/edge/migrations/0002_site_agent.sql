-- +goose Up

-- One number a site, which goes up with every change of what its agent should
-- pull. It stands apart from sites, whose rows every heartbeat writes.
CREATE TABLE desired_revisions (
    site_id  TEXT PRIMARY KEY,
    revision BIGINT NOT NULL
);

ALTER TABLE deployments ADD COLUMN pull_policy TEXT NOT NULL DEFAULT 'missing';
ALTER TABLE deployments ADD COLUMN restart TEXT NOT NULL DEFAULT 'always';
ALTER TABLE deployments ADD COLUMN health TEXT NOT NULL DEFAULT 'null'; -- JSON
ALTER TABLE deployments ADD COLUMN previous_run TEXT NOT NULL DEFAULT 'null'; -- JSON: how the previous image ran

-- Tokens that enroll a few sites for a short time. (An org's own enrollment
-- token, made with the org, is in tokens.)
CREATE TABLE enrollment_tokens (
    id         TEXT PRIMARY KEY,
    hash       TEXT NOT NULL,
    org_id     TEXT NOT NULL,
    name       TEXT NOT NULL,
    max_uses   BIGINT NOT NULL,
    uses       BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX enrollment_tokens_by_hash ON enrollment_tokens (hash);
CREATE INDEX enrollment_tokens_by_org ON enrollment_tokens (org_id, id);
CREATE INDEX enrollment_tokens_by_expiry ON enrollment_tokens (expires_at);

-- +goose Down
DROP TABLE enrollment_tokens;
ALTER TABLE deployments DROP COLUMN previous_run;
ALTER TABLE deployments DROP COLUMN health;
ALTER TABLE deployments DROP COLUMN restart;
ALTER TABLE deployments DROP COLUMN pull_policy;
DROP TABLE desired_revisions;
