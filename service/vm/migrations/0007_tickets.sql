-- +goose Up

-- Words that open one socket to a VM's console or screen, once, in place of credentials.
CREATE TABLE tickets (
    hash       TEXT PRIMARY KEY, -- of the word
    subject    TEXT NOT NULL,    -- what it opens
    owner      TEXT NOT NULL,    -- the account
    token      TEXT NOT NULL,    -- whose credentials it stands for; sealed
    expires_at BIGINT NOT NULL
);
CREATE INDEX tickets_by_owner ON tickets (owner);
CREATE INDEX tickets_expires_at ON tickets (expires_at);
-- +goose Down
DROP TABLE tickets;
