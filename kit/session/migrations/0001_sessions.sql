-- +goose Up

-- Sessions of the console that were signed out before they expired.
CREATE TABLE ended_sessions (
    id         TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX ended_sessions_expires_at ON ended_sessions (expires_at);

-- +goose Down
DROP TABLE ended_sessions;
