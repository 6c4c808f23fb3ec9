-- +goose Up

-- The name of the volume is the one that the storage system shows: users have chosen it as that of an image.
ALTER TABLE volumes ADD COLUMN named BOOLEAN NOT NULL DEFAULT FALSE;
-- The snapshot that it shares data with, as the storage system names it; empty: none, or not known.
ALTER TABLE volumes ADD COLUMN parent TEXT NOT NULL DEFAULT '';
-- What clients may read and write; 0: no limit.
ALTER TABLE volumes ADD COLUMN iops BIGINT NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN bps BIGINT NOT NULL DEFAULT 0;

-- Names of images are unique in their pool, those of other volumes in their tenant.
DROP INDEX volumes_by_name;
CREATE UNIQUE INDEX volumes_by_name ON volumes (tenant, name)
    WHERE deleted_at IS NULL AND NOT foreign_made AND NOT named;
CREATE UNIQUE INDEX volumes_by_image ON volumes (pool_id, name) WHERE deleted_at IS NULL AND named;

-- +goose Down
DROP INDEX volumes_by_image;
DROP INDEX volumes_by_name;
CREATE UNIQUE INDEX volumes_by_name ON volumes (tenant, name) WHERE deleted_at IS NULL AND NOT foreign_made;
ALTER TABLE volumes DROP COLUMN bps;
ALTER TABLE volumes DROP COLUMN iops;
ALTER TABLE volumes DROP COLUMN parent;
ALTER TABLE volumes DROP COLUMN named;
