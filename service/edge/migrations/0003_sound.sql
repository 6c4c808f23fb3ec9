-- +goose Up

-- Why nothing is sent over a route although it is enabled: a fault of the control plane's own, such
-- as a secret that does not open.
ALTER TABLE routes ADD COLUMN blocked_reason TEXT NOT NULL DEFAULT '';

-- Each batch of events asks how many deliveries wait in all orgs. The index does not change with the
-- counts.
CREATE INDEX tallies_by_kind ON tallies (kind);

-- New deliveries are read by site, so that one site's backlog does not hold up the others, and
-- retries and replays are read beside them. Every index costs each delivery twice, when it is made
-- and when it is done, so that there is one for each of the two kinds. What by_seq was for, the
-- primary key answers route by route.
CREATE INDEX deliveries_new ON deliveries (route_id, site_id, event_seq) WHERE attempts = 0 AND dead_letter_id = '';
CREATE INDEX deliveries_again ON deliveries (route_id, next_at) WHERE attempts > 0 OR dead_letter_id <> '';
DROP INDEX deliveries_by_seq;
DROP INDEX deliveries_due;

-- +goose Down
DROP INDEX tallies_by_kind;
CREATE INDEX deliveries_due ON deliveries (route_id, next_at);
CREATE INDEX deliveries_by_seq ON deliveries (event_seq);
DROP INDEX deliveries_again;
DROP INDEX deliveries_new;
ALTER TABLE routes DROP COLUMN blocked_reason;
