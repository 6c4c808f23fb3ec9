-- +goose Up

-- What each VM used, by minute: sums over the readings of its counters in that minute.
CREATE TABLE vm_minutes (
    vm_id               TEXT NOT NULL,
    minute              BIGINT NOT NULL,
    samples             BIGINT NOT NULL,
    measured_us         BIGINT NOT NULL, -- the time between the readings
    cpu_us              BIGINT NOT NULL,
    memory_bytes        BIGINT NOT NULL, -- the sum of the samples
    disk_read_bytes     BIGINT NOT NULL,
    disk_written_bytes  BIGINT NOT NULL,
    net_received_bytes  BIGINT NOT NULL,
    net_sent_bytes      BIGINT NOT NULL,
    PRIMARY KEY (vm_id, minute)
);
CREATE INDEX vm_minutes_by_minute ON vm_minutes (minute);

-- +goose Down
DROP TABLE vm_minutes;
