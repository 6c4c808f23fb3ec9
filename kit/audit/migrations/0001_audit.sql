-- +goose Up
CREATE TABLE audit_entries (
    seq        BIGINT PRIMARY KEY,
    id         TEXT NOT NULL,
    time       BIGINT NOT NULL,
    actor      TEXT NOT NULL,
    actor_type TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    site       TEXT NOT NULL,
    result     TEXT NOT NULL,
    message    TEXT NOT NULL,
    detail     TEXT NOT NULL,
    hash       TEXT NOT NULL
);
CREATE INDEX audit_by_tenant ON audit_entries (tenant, seq);
CREATE INDEX audit_by_site ON audit_entries (site, seq);
CREATE INDEX audit_by_actor ON audit_entries (actor, seq);
CREATE INDEX audit_by_action ON audit_entries (action, seq);
CREATE TABLE audit_head (
    one       BIGINT PRIMARY KEY,
    seq       BIGINT NOT NULL,
    hash      TEXT NOT NULL,
    signature TEXT NOT NULL
);
INSERT INTO audit_head (one, seq, hash, signature) VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000', '');
-- +goose Down
DROP TABLE audit_head;
DROP TABLE audit_entries;
