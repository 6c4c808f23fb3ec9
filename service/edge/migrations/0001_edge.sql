-- +goose Up

-- Numbers handed out in commit order: taking one locks its row until the
-- transaction ends, so a higher number is never visible before a lower one.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counters (name, value) VALUES ('event', 0), ('activity', 0), ('crl', 0), ('routes', 0);

-- How many objects are in which state, kept up to date by every change, so that
-- the overview costs the same for ten devices and for a million.
CREATE TABLE tallies (
    org_id TEXT NOT NULL,
    kind   TEXT NOT NULL,
    state  TEXT NOT NULL,
    n      BIGINT NOT NULL,
    PRIMARY KEY (org_id, kind, state)
);

CREATE TABLE orgs (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE tokens (
    hash       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL, -- session, org, agent, enrollment
    role       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    org_id     TEXT NOT NULL,
    site_id    TEXT NOT NULL,
    revoked    BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
CREATE INDEX tokens_by_org ON tokens (org_id);
CREATE INDEX tokens_by_site ON tokens (site_id);
CREATE INDEX tokens_by_expiry ON tokens (expires_at);

CREATE TABLE sites (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL,
    name           TEXT NOT NULL,
    status         TEXT NOT NULL,
    version        TEXT NOT NULL,
    labels         TEXT NOT NULL,
    last_seen_at   BIGINT,
    enrolled_at    BIGINT NOT NULL,
    cert_serial    TEXT NOT NULL,
    cert_not_after BIGINT
);
CREATE INDEX sites_by_org ON sites (org_id, id);
CREATE INDEX sites_by_status ON sites (status, last_seen_at);

CREATE TABLE certificates (
    serial     TEXT PRIMARY KEY,
    site_id    TEXT NOT NULL,
    not_after  BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX certificates_by_site ON certificates (site_id);
CREATE INDEX certificates_by_revocation ON certificates (revoked_at, not_after);
CREATE TABLE crl (
    one         BIGINT PRIMARY KEY,
    number      BIGINT NOT NULL,
    der         TEXT NOT NULL, -- base64
    next_update BIGINT NOT NULL
);

CREATE TABLE events (
    seq         BIGINT PRIMARY KEY,
    org_id      TEXT NOT NULL,
    event_id    TEXT NOT NULL,
    site_id     TEXT NOT NULL,
    topic       TEXT NOT NULL,
    payload     TEXT NOT NULL,
    headers     TEXT NOT NULL,
    event_time  BIGINT NOT NULL,
    received_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX events_by_id ON events (org_id, event_id);
CREATE INDEX events_by_site ON events (site_id, seq);
CREATE INDEX events_by_org ON events (org_id, seq);

-- One row a minute and org: the rates of the overview, and where in the sequence
-- a minute begins, which stands in for an index on received_at.
CREATE TABLE event_minutes (
    minute    BIGINT NOT NULL,
    org_id    TEXT NOT NULL,
    events    BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    bytes     BIGINT NOT NULL,
    PRIMARY KEY (minute, org_id)
);

CREATE TABLE routes (
    id              TEXT PRIMARY KEY,
    org_id          TEXT NOT NULL,
    name            TEXT NOT NULL,
    site_id         TEXT NOT NULL,
    topic           TEXT NOT NULL,
    target_url      TEXT NOT NULL,
    method          TEXT NOT NULL,
    enabled         BOOLEAN NOT NULL,
    disabled_reason TEXT NOT NULL,
    retry_max       BIGINT NOT NULL,
    timeout_seconds BIGINT NOT NULL,
    secret          TEXT NOT NULL, -- sealed
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX routes_by_org ON routes (org_id, id);
CREATE TABLE route_stats (
    route_id        TEXT PRIMARY KEY,
    delivered       BIGINT NOT NULL,
    failed_attempts BIGINT NOT NULL,
    dead_lettered   BIGINT NOT NULL,
    last_status     BIGINT NOT NULL,
    last_error      TEXT NOT NULL,
    last_success_at BIGINT,
    last_failure_at BIGINT
);
CREATE TABLE route_minutes (
    route_id        TEXT NOT NULL,
    minute          BIGINT NOT NULL,
    org_id          TEXT NOT NULL,
    delivered       BIGINT NOT NULL,
    failed_attempts BIGINT NOT NULL,
    dead_lettered   BIGINT NOT NULL,
    PRIMARY KEY (route_id, minute)
);
CREATE INDEX route_minutes_by_minute ON route_minutes (minute);

-- What is still to be delivered. The row is gone once the target said yes, or
-- once it became a dead letter.
CREATE TABLE deliveries (
    route_id       TEXT NOT NULL,
    event_seq      BIGINT NOT NULL,
    shard          BIGINT NOT NULL,
    site_id        TEXT NOT NULL,
    attempts       BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    next_at        BIGINT NOT NULL,
    dead_letter_id TEXT NOT NULL, -- set when this is a replay
    PRIMARY KEY (route_id, event_seq)
);
CREATE INDEX deliveries_due ON deliveries (route_id, next_at);
CREATE INDEX deliveries_by_seq ON deliveries (event_seq);

-- A dead letter keeps its event, since it may outlive it.
CREATE TABLE deadletters (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL, -- the route's
    route_id     TEXT NOT NULL,
    event_seq    BIGINT NOT NULL,
    event_org_id TEXT NOT NULL,
    event_id     TEXT NOT NULL,
    site_id      TEXT NOT NULL,
    topic        TEXT NOT NULL,
    payload      TEXT NOT NULL,
    headers      TEXT NOT NULL,
    event_time   BIGINT NOT NULL,
    received_at  BIGINT NOT NULL,
    attempts     BIGINT NOT NULL,
    last_status  BIGINT NOT NULL,
    last_error   TEXT NOT NULL,
    reason       TEXT NOT NULL,
    status       TEXT NOT NULL, -- dead, replaying
    created_at   BIGINT NOT NULL,
    replay_count BIGINT NOT NULL
);
CREATE INDEX deadletters_by_time ON deadletters (created_at, id);
CREATE INDEX deadletters_by_org ON deadletters (org_id, created_at, id);
CREATE INDEX deadletters_by_site ON deadletters (site_id, created_at, id);
CREATE INDEX deadletters_by_route ON deadletters (route_id, created_at, id);

-- Which replica works on which part of the deliveries.
CREATE TABLE delivery_shards (
    shard      BIGINT PRIMARY KEY,
    owner      TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE TABLE delivery_replicas (
    id         TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL
);

-- A device with its twin and the state of its update: they are read and written
-- together. What users see as desired.ota and reported.ota is kept apart here.
CREATE TABLE devices (
    device_id        TEXT PRIMARY KEY,
    site_id          TEXT NOT NULL,
    org_id           TEXT NOT NULL,
    name             TEXT NOT NULL,
    model            TEXT NOT NULL,
    firmware_version TEXT NOT NULL,
    labels           TEXT NOT NULL,
    registered_at    BIGINT NOT NULL,
    last_seen_at     BIGINT NOT NULL,
    desired          TEXT NOT NULL,
    reported         TEXT NOT NULL,
    desired_version  BIGINT NOT NULL,
    reported_version BIGINT NOT NULL,
    twin_updated_at  BIGINT NOT NULL,
    ota_request      TEXT NOT NULL, -- JSON, empty when there is none
    ota_request_id   TEXT NOT NULL,
    ota_campaign_id  TEXT NOT NULL,
    ota_state        TEXT NOT NULL,
    ota_progress     BIGINT NOT NULL,
    ota_message      TEXT NOT NULL,
    ota_updated_at   BIGINT
);
CREATE INDEX devices_by_site ON devices (site_id, device_id);
CREATE INDEX devices_by_org ON devices (org_id, device_id);
CREATE INDEX devices_by_ota ON devices (ota_state, device_id);

CREATE TABLE campaigns (
    id                     TEXT PRIMARY KEY,
    org_id                 TEXT NOT NULL,
    name                   TEXT NOT NULL,
    version                TEXT NOT NULL,
    url                    TEXT NOT NULL,
    sha256                 TEXT NOT NULL,
    size                   BIGINT NOT NULL,
    targets                TEXT NOT NULL,
    stages                 TEXT NOT NULL,
    success_threshold      DOUBLE PRECISION NOT NULL,
    failure_threshold      DOUBLE PRECISION NOT NULL,
    min_devices            BIGINT NOT NULL,
    soak_seconds           BIGINT NOT NULL,
    device_timeout_seconds BIGINT NOT NULL,
    auto_promote           BOOLEAN NOT NULL,
    auto_abort             BOOLEAN NOT NULL,
    status                 TEXT NOT NULL,
    current_stage          BIGINT NOT NULL,
    paused_reason          TEXT NOT NULL,
    phase                  TEXT NOT NULL,
    phase_done             BIGINT NOT NULL,
    phase_total            BIGINT NOT NULL,
    created_at             BIGINT NOT NULL,
    started_at             BIGINT,
    stage_started_at       BIGINT,
    stage_met_at           BIGINT,
    finished_at            BIGINT
);
CREATE INDEX campaigns_by_org ON campaigns (org_id, id);
CREATE INDEX campaigns_by_status ON campaigns (status, id);
CREATE TABLE campaign_devices (
    campaign_id  TEXT NOT NULL,
    device_id    TEXT NOT NULL,
    position     TEXT NOT NULL, -- hash of campaign and device: the order of the rollout
    stage        BIGINT NOT NULL,
    outcome      TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    requested_at BIGINT,
    message      TEXT NOT NULL,
    PRIMARY KEY (campaign_id, device_id)
);
CREATE INDEX campaign_devices_by_position ON campaign_devices (campaign_id, position);
CREATE INDEX campaign_devices_by_outcome ON campaign_devices (campaign_id, stage, outcome, position);
CREATE INDEX campaign_devices_by_request ON campaign_devices (campaign_id, outcome, requested_at);
CREATE INDEX campaign_devices_by_device ON campaign_devices (device_id);

CREATE TABLE deployments (
    id                TEXT PRIMARY KEY,
    site_id           TEXT NOT NULL,
    org_id            TEXT NOT NULL,
    name              TEXT NOT NULL,
    image             TEXT NOT NULL,
    version           TEXT NOT NULL,
    desired_state     TEXT NOT NULL,
    env               TEXT NOT NULL,
    ports             TEXT NOT NULL,
    revision          BIGINT NOT NULL,
    observed_revision BIGINT NOT NULL,
    previous_image    TEXT NOT NULL,
    previous_version  TEXT NOT NULL,
    status            TEXT NOT NULL,
    message           TEXT NOT NULL,
    violates          BOOLEAN NOT NULL, -- no policy pack allows the image any more
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL
);
CREATE UNIQUE INDEX deployments_by_name ON deployments (site_id, name);
CREATE INDEX deployments_by_org ON deployments (org_id, id);
CREATE INDEX deployments_by_status ON deployments (status, id);
CREATE INDEX deployments_in_violation ON deployments (id) WHERE violates;

CREATE TABLE policy_packs (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL,
    name           TEXT NOT NULL,
    version        BIGINT NOT NULL,
    site_id        TEXT NOT NULL,
    enabled        BOOLEAN NOT NULL,
    allowed_images TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL
);
CREATE INDEX policy_packs_by_site ON policy_packs (site_id);

CREATE TABLE alerts (
    id            TEXT PRIMARY KEY,
    kind          TEXT NOT NULL,
    severity      TEXT NOT NULL,
    status        TEXT NOT NULL,
    org_id        TEXT NOT NULL,
    site_id       TEXT NOT NULL,
    subject       TEXT NOT NULL,
    message       TEXT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL,
    resolved_at   BIGINT
);
CREATE UNIQUE INDEX alerts_firing ON alerts (kind, subject) WHERE status = 'firing';
CREATE INDEX alerts_by_kind ON alerts (kind, status);
CREATE INDEX alerts_by_org ON alerts (org_id, first_seen_at, id);
CREATE INDEX alerts_by_time ON alerts (first_seen_at, id);

CREATE TABLE activity (
    seq     BIGINT PRIMARY KEY,
    time    BIGINT NOT NULL,
    level   TEXT NOT NULL,
    source  TEXT NOT NULL,
    chapter TEXT NOT NULL,
    org_id  TEXT NOT NULL,
    site_id TEXT NOT NULL,
    site    TEXT NOT NULL,
    action  TEXT NOT NULL,
    message TEXT NOT NULL,
    detail  TEXT NOT NULL
);
CREATE INDEX activity_by_org ON activity (org_id, seq);
CREATE INDEX activity_by_site ON activity (site_id, seq);

-- +goose Down
DROP TABLE activity; DROP TABLE alerts; DROP TABLE policy_packs; DROP TABLE deployments;
DROP TABLE campaign_devices; DROP TABLE campaigns; DROP TABLE devices;
DROP TABLE delivery_replicas; DROP TABLE delivery_shards; DROP TABLE deadletters; DROP TABLE deliveries;
DROP TABLE route_minutes; DROP TABLE route_stats; DROP TABLE routes;
DROP TABLE event_minutes; DROP TABLE events; DROP TABLE crl; DROP TABLE certificates;
DROP TABLE sites; DROP TABLE tokens; DROP TABLE orgs; DROP TABLE tallies; DROP TABLE counters;
