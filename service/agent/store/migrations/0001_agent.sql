-- +goose Up

-- Numbers that are changed with what they count.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

-- Events that were accepted and are not at the control plane yet, in the order of
-- acceptance. AUTOINCREMENT: a number is never used twice, so that what was sent
-- can be deleted by its numbers whatever happened meanwhile.
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    topic TEXT NOT NULL,
    payload TEXT NOT NULL,
    headers TEXT NOT NULL,
    event_time BIGINT NOT NULL,
    accepted_at BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);

-- The newest events that the control plane refused for good.
CREATE TABLE refused_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    payload TEXT NOT NULL,
    reason TEXT NOT NULL,
    refused_at BIGINT NOT NULL
);

-- Devices of the site: what the control plane last said of them, and what is to
-- be told to it. registration is empty when no program here registered the device.
-- touched has the keys of the patches that patch is made of.
-- pending_* are numbers that go up with every change; 0 is nothing pending.
CREATE TABLE devices (
    device_id TEXT PRIMARY KEY,
    desired TEXT NOT NULL DEFAULT '{}',
    desired_version BIGINT NOT NULL DEFAULT 0,
    reported TEXT NOT NULL DEFAULT '{}',
    reported_version BIGINT NOT NULL DEFAULT 0,
    registration TEXT NOT NULL DEFAULT '',
    pending_registration BIGINT NOT NULL DEFAULT 0,
    patch TEXT NOT NULL DEFAULT '',
    touched TEXT NOT NULL DEFAULT '',
    pending_patch BIGINT NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT ''
);
CREATE INDEX devices_pending_registration ON devices (device_id) WHERE pending_registration > 0;
CREATE INDEX devices_pending_patch ON devices (device_id) WHERE pending_patch > 0;

-- The newest update of each device.
CREATE TABLE updates (
    device_id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL,
    version TEXT NOT NULL,
    url TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size BIGINT NOT NULL,
    forced BOOLEAN NOT NULL,
    phase TEXT NOT NULL,
    progress BIGINT NOT NULL,
    message TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- What is to be told of updates, in order.
CREATE TABLE update_reports (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    device_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    state TEXT NOT NULL,
    progress BIGINT NOT NULL,
    message TEXT NOT NULL
);
CREATE INDEX update_reports_device ON update_reports (device_id, request_id);

-- +goose Down
DROP TABLE update_reports;
DROP TABLE updates;
DROP TABLE devices;
DROP TABLE refused_events;
DROP TABLE outbox;
DROP TABLE counters;
