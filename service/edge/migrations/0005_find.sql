-- +goose Up

-- Which topics occur in which 8,192 events (package topicmap), so that a search for a topic need not
-- read all events. seqs holds the numbers of the events as long as there are few.
CREATE TABLE event_topics (
    block  BIGINT NOT NULL, -- seq / 8192
    org_id TEXT NOT NULL,
    topic  TEXT NOT NULL, -- empty: topics that found no more room
    n      BIGINT NOT NULL,
    seqs   TEXT NOT NULL, -- with commas; empty: too many
    PRIMARY KEY (block, org_id, topic)
);
CREATE INDEX event_topics_by_org ON event_topics (org_id, block, topic);
CREATE INDEX event_topics_by_topic ON event_topics (org_id, topic, block);

-- The first block from which on all are described. The service describes the events of before this
-- migration in the background, the newest first.
INSERT INTO counters (name, value)
SELECT 'topics', CASE WHEN value = 0 THEN 0 ELSE value / 8192 + 1 END FROM counters WHERE name = 'event';

-- What a search looks at, in lower case: id, name, model and labels, each on a line of its own.
-- Empty: the service has yet to write it. It is the last column of the indexes that lists are read by, in each order and for one
-- org or all, so that a search that finds nothing reads only the index.
ALTER TABLE sites ADD COLUMN search TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN search TEXT NOT NULL DEFAULT '';

-- Before there are indexes that would have to follow. What SQL cannot write as the service does (other
-- letters than ASCII, characters that JSON escapes, more than 1,024 bytes) is left to it.
UPDATE sites SET search = LOWER(id || '
' || name || CASE WHEN labels IN ('null', '{}') THEN '' ELSE '
' || REPLACE(REPLACE(REPLACE(REPLACE(labels, '":"', '='), '","', '
'), '{"', ''), '"}', '') END)
WHERE OCTET_LENGTH(name || labels) = LENGTH(name || labels) AND LENGTH(name || labels) < 900
    AND REPLACE(labels, '\', '') = labels;
UPDATE devices SET search = LOWER(device_id || '
' || name || '
' || model || CASE WHEN labels IN ('null', '{}') THEN '' ELSE '
' || REPLACE(REPLACE(REPLACE(REPLACE(labels, '":"', '='), '","', '
'), '{"', ''), '"}', '') END)
WHERE OCTET_LENGTH(device_id || name || model || labels) = LENGTH(device_id || name || model || labels)
    AND LENGTH(device_id || name || model || labels) < 900 AND REPLACE(labels, '\', '') = labels;
CREATE INDEX sites_to_describe ON sites (id) WHERE search = '';
CREATE INDEX devices_to_describe ON devices (device_id) WHERE search = '';

-- A list is sorted by it, and no cursor is after NULL.
UPDATE sites SET last_seen_at = enrolled_at WHERE last_seen_at IS NULL;

DROP INDEX sites_by_org;
CREATE INDEX sites_by_id ON sites (id, search);
CREATE INDEX sites_by_name ON sites (name, id, search);
CREATE INDEX sites_by_state ON sites (status, id, search);
CREATE INDEX sites_by_seen ON sites (last_seen_at, id, search);
CREATE INDEX sites_by_org ON sites (org_id, id, search);
CREATE INDEX sites_by_org_name ON sites (org_id, name, id, search);
CREATE INDEX sites_by_org_state ON sites (org_id, status, id, search);
CREATE INDEX sites_by_org_seen ON sites (org_id, last_seen_at, id, search);

DROP INDEX devices_by_org;
DROP INDEX devices_by_site;
CREATE INDEX devices_by_id ON devices (device_id, search);
CREATE INDEX devices_by_name ON devices (name, device_id, search);
CREATE INDEX devices_by_seen ON devices (last_seen_at, device_id, search);
CREATE INDEX devices_by_org ON devices (org_id, device_id, search);
CREATE INDEX devices_by_org_name ON devices (org_id, name, device_id, search);
CREATE INDEX devices_by_org_seen ON devices (org_id, last_seen_at, device_id, search);
CREATE INDEX devices_by_site ON devices (site_id, device_id, org_id, search);

-- Searches of dead letters read these indexes alone, and not the payloads.
DROP INDEX deadletters_by_time;
DROP INDEX deadletters_by_org;
CREATE INDEX deadletters_by_time ON deadletters (created_at, id, route_id, site_id, reason, topic, event_id, last_error);
CREATE INDEX deadletters_by_org
    ON deadletters (org_id, created_at, id, route_id, site_id, reason, topic, event_id, last_error);

-- +goose Down
DROP INDEX deadletters_by_org;
DROP INDEX deadletters_by_time;
CREATE INDEX deadletters_by_org ON deadletters (org_id, created_at, id);
CREATE INDEX deadletters_by_time ON deadletters (created_at, id);
DROP INDEX devices_by_site;
DROP INDEX devices_by_org_seen;
DROP INDEX devices_by_org_name;
DROP INDEX devices_by_org;
DROP INDEX devices_by_seen;
DROP INDEX devices_by_name;
DROP INDEX devices_by_id;
DROP INDEX devices_to_describe;
CREATE INDEX devices_by_site ON devices (site_id, device_id);
CREATE INDEX devices_by_org ON devices (org_id, device_id);
DROP INDEX sites_by_org_seen;
DROP INDEX sites_by_org_state;
DROP INDEX sites_by_org_name;
DROP INDEX sites_by_org;
DROP INDEX sites_by_seen;
DROP INDEX sites_by_state;
DROP INDEX sites_by_name;
DROP INDEX sites_by_id;
DROP INDEX sites_to_describe;
CREATE INDEX sites_by_org ON sites (org_id, id);
ALTER TABLE devices DROP COLUMN search;
ALTER TABLE sites DROP COLUMN search;
DELETE FROM counters WHERE name = 'topics';
DROP TABLE event_topics;
