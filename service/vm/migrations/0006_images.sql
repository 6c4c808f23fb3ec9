-- +goose Up

-- Images that VMs are made of. The hypervisor daemon keeps the disk of a completed one in its catalog,
-- under catalog_name.
CREATE TABLE images (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    tenant       TEXT NOT NULL,    -- empty: of no tenant
    shared       BOOLEAN NOT NULL, -- every tenant sees it
    catalog_name TEXT NOT NULL,    -- the name at the daemon
    kind         TEXT NOT NULL,    -- disk or iso
    origin       TEXT NOT NULL,    -- the kind of job that makes it
    spec         TEXT NOT NULL,    -- JSON: what was asked for
    state        TEXT NOT NULL,
    uploading    BOOLEAN NOT NULL, -- what the daemon has under catalog_name may be an unfinished one of ours
    error        TEXT NOT NULL,    -- why it failed
    size         BIGINT NOT NULL,  -- bytes at the daemon
    virtual_size BIGINT NOT NULL,  -- bytes of the disk
    sha256       TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    search       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    started_at   BIGINT,
    completed_at BIGINT
);
CREATE UNIQUE INDEX images_by_name ON images (tenant, name) WHERE state NOT IN ('failed', 'cancelled');
CREATE INDEX images_by_catalog ON images (catalog_name);
CREATE INDEX images_by_state ON images (state, id);
CREATE INDEX images_by_tenant ON images (tenant, id);

-- What the tools print that make an image, in pieces. The last MiB is kept. It goes with the image.
CREATE TABLE image_logs (
    image_id TEXT NOT NULL,
    begins   BIGINT NOT NULL, -- bytes before this piece
    ends     BIGINT NOT NULL, -- begins and the bytes of the piece
    piece    TEXT NOT NULL,
    PRIMARY KEY (image_id, begins)
);
-- +goose Down
DROP TABLE image_logs;
DROP TABLE images;
