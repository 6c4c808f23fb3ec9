-- +goose Up

-- The segments of the chain. The first is the genesis; each other one begins after a break.
CREATE TABLE audit_segments (
    number     BIGINT PRIMARY KEY,
    id         TEXT NOT NULL,   -- random
    log        TEXT NOT NULL,   -- the id of the genesis
    time       BIGINT NOT NULL,
    first      BIGINT NOT NULL, -- the number of its first entry
    start      TEXT NOT NULL,   -- the hash that its first entry extends
    after_segment BIGINT NOT NULL, -- the segment before it; 0: none
    after_seq  BIGINT NOT NULL, -- where the segment before was last known to end
    after_hash TEXT NOT NULL,   -- empty: not known
    signature  TEXT NOT NULL
);

-- The segment that the head is in. 0: the head was made before there were segments.
ALTER TABLE audit_head ADD COLUMN segment BIGINT NOT NULL DEFAULT 0;

-- Breaks that the log records, for alerts. The entries are what counts: this is made from them.
CREATE TABLE audit_breaks (
    seq          BIGINT PRIMARY KEY, -- the entry that records it
    message      TEXT NOT NULL,
    acknowledged TEXT NOT NULL -- the service's signature once somebody has; empty: nobody has
);

-- +goose Down
DROP TABLE audit_breaks;
ALTER TABLE audit_head DROP COLUMN segment;
DROP TABLE audit_segments;
