-- +goose Up

-- The outcomes of all routes of an org per minute. Adding up route_minutes for the history of many
-- routes takes too long.
CREATE TABLE delivery_minutes (
    minute          BIGINT NOT NULL,
    org_id          TEXT NOT NULL,
    delivered       BIGINT NOT NULL,
    failed_attempts BIGINT NOT NULL,
    dead_lettered   BIGINT NOT NULL,
    PRIMARY KEY (minute, org_id)
);
INSERT INTO delivery_minutes (minute, org_id, delivered, failed_attempts, dead_lettered)
SELECT minute, org_id, CAST(SUM(delivered) AS BIGINT), CAST(SUM(failed_attempts) AS BIGINT), CAST(SUM(dead_lettered) AS BIGINT)
FROM route_minutes GROUP BY minute, org_id;

-- Since when all minutes are counted. Zero: the service has yet to write it.
INSERT INTO counters (name, value) SELECT 'history', COALESCE(MIN(minute), 0) FROM event_minutes;

-- +goose Down
DELETE FROM counters WHERE name = 'history';
DROP TABLE delivery_minutes;
