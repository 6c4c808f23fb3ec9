-- +goose Up

-- Templates: VMs with their memory, from which others start. A row exists once its files are complete.
CREATE TABLE templates (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    image         TEXT NOT NULL,    -- the name that it was made of
    content       TEXT NOT NULL,    -- the catalog content that it was made of
    vcpus         BIGINT NOT NULL,
    memory_mib    BIGINT NOT NULL,
    network       BOOLEAN NOT NULL, -- it has a network device
    disk_bytes    BIGINT NOT NULL,  -- of its disk, as its guest sees it; 0: none
    traits        TEXT NOT NULL,    -- JSON: what a VM must have in common with it
    agent_version TEXT NOT NULL,
    agent_program TEXT NOT NULL,    -- the SHA-256 of the agent that the host gave it; empty: the image's own
    mac           TEXT NOT NULL,    -- of its network device; empty: none
    secret        TEXT NOT NULL,    -- sealed; of its agent, which no other VM has
    memory_sha256 TEXT NOT NULL,
    state_sha256  TEXT NOT NULL,
    size_bytes    BIGINT NOT NULL,  -- on disk
    created_at    BIGINT NOT NULL
);
CREATE INDEX templates_by_content ON templates (content, id);

-- Which templates the first start of a VM may use: empty: none, any, or the id of one. It is empty from
-- the first start on, and when something was done to the disk.
ALTER TABLE vms ADD COLUMN instant TEXT NOT NULL DEFAULT '';
-- The template that the process began with; empty: it booted.
ALTER TABLE vms ADD COLUMN template TEXT NOT NULL DEFAULT '';
-- Why the process booted although the VM could have used a template; empty: it did not, or there was none.
ALTER TABLE vms ADD COLUMN booted TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE vms DROP COLUMN booted;
ALTER TABLE vms DROP COLUMN template;
ALTER TABLE vms DROP COLUMN instant;
DROP TABLE templates;
