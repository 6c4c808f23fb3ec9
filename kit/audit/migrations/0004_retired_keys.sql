-- +goose Up
-- Public keys that signed the log before its current one. What they signed counts in the files of
-- checkpoints, for the segments that they signed.
CREATE TABLE audit_retired_keys (
    public       TEXT PRIMARY KEY, -- base64
    last_segment BIGINT NOT NULL,  -- the last segment that it signed
    signature    TEXT NOT NULL     -- by the current key
);

-- +goose Down
DROP TABLE audit_retired_keys;
