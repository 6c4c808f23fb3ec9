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

-- The first block from which on all are described. The service describes the events of before this
-- migration in the background, the newest first.
INSERT INTO counters (name, value)
SELECT 'topics', CASE WHEN value = 0 THEN 0 ELSE value / 8192 + 1 END FROM counters WHERE name = 'event';

-- +goose Down
DELETE FROM counters WHERE name = 'topics';
DROP TABLE event_topics;
