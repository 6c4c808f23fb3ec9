-- +goose Up

-- What happened to all VMs, in the order of the commits, for streams. It outlives the VMs; the last
-- 10,000 are kept.
CREATE TABLE vm_feed (
    id      BIGINT PRIMARY KEY,
    at      BIGINT NOT NULL,
    vm_id   TEXT NOT NULL,
    name    TEXT NOT NULL,
    tenant  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    state   TEXT NOT NULL, -- empty: the VM is gone
    message TEXT NOT NULL,
    actor   TEXT NOT NULL
);
CREATE INDEX vm_feed_by_tenant ON vm_feed (tenant, id);

-- +goose Down
DROP TABLE vm_feed;
