-- +goose Up

-- What usage costs from a time on, until the next price. Amounts are decimals.
CREATE TABLE prices (
    id                 BIGINT PRIMARY KEY,
    from_at            BIGINT NOT NULL UNIQUE,
    cpu_per_hour       TEXT NOT NULL,
    memory_gb_per_hour TEXT NOT NULL,
    disk_gb_per_hour   TEXT NOT NULL,
    egress_per_gb      TEXT NOT NULL,
    currency           TEXT NOT NULL
);

-- What a VM is billed for: each run of its process, and its disk. started_at is the daemon's for a run.
CREATE TABLE usage_tracks (
    vm_id      TEXT NOT NULL,
    kind       TEXT NOT NULL, -- run or disk
    started_at BIGINT NOT NULL,
    by_event   BOOLEAN NOT NULL, -- it is an event's time, which is a moment after the daemon's started_at
    tenant     TEXT NOT NULL,
    to_at      BIGINT NOT NULL,  -- counted until then
    final      BOOLEAN NOT NULL, -- nothing is counted any more
    lost       BOOLEAN NOT NULL, -- it is final because the daemon does not know the VM; unless it is seen again
    counter    BIGINT NOT NULL,  -- bytes that the process had sent when its counter was last read
    counter_at BIGINT,
    PRIMARY KEY (vm_id, kind, started_at)
);
CREATE INDEX usage_tracks_open ON usage_tracks (tenant, to_at) WHERE NOT final;
CREATE INDEX usage_tracks_old ON usage_tracks (to_at);

-- The times of a track in which size and price were the same. They follow each other without gaps, and
-- end at months' edges.
CREATE TABLE usage_segments (
    vm_id      TEXT NOT NULL,
    kind       TEXT NOT NULL,
    started_at BIGINT NOT NULL, -- of the track
    from_at    BIGINT NOT NULL,
    to_at      BIGINT NOT NULL,
    vm_name    TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    cpus       BIGINT NOT NULL,
    memory     BIGINT NOT NULL, -- MiB
    disk       BIGINT NOT NULL, -- GiB
    egress     BIGINT NOT NULL, -- bytes
    price_id   BIGINT NOT NULL, -- 0: there was no price
    PRIMARY KEY (vm_id, kind, started_at, from_at)
);
CREATE INDEX usage_segments_by_tenant ON usage_segments (tenant, to_at);
CREATE INDEX usage_segments_by_time ON usage_segments (to_at);
CREATE INDEX usage_segments_by_price ON usage_segments (price_id);

-- The last event of each host that was counted; the node of a single daemon is empty.
CREATE TABLE usage_cursors (
    node       TEXT PRIMARY KEY,
    event      TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Invoices of months that are over. They never change.
CREATE TABLE invoices (
    number     BIGINT PRIMARY KEY,
    tenant     TEXT NOT NULL, -- empty: the VMs without a tenant
    from_at    BIGINT NOT NULL,
    to_at      BIGINT NOT NULL,
    currency   TEXT NOT NULL,
    total      TEXT NOT NULL,
    lines      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (tenant, from_at)
);
CREATE INDEX invoices_old ON invoices (to_at);

-- One row, which all that counts usage, sets prices and numbers invoices locks, so that they take turns.
CREATE TABLE billing_turns (
    id           BIGINT PRIMARY KEY,
    next_price   BIGINT NOT NULL,
    next_invoice BIGINT NOT NULL
);
INSERT INTO billing_turns (id, next_price, next_invoice) VALUES (1, 1, 1);
-- +goose Down
DROP TABLE billing_turns;
DROP TABLE invoices;
DROP TABLE usage_cursors;
DROP TABLE usage_segments;
DROP TABLE usage_tracks;
DROP TABLE prices;
