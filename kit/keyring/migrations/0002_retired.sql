-- +goose Up
-- Fingerprints of keys that a rotation has replaced. They are not taken into use again.
CREATE TABLE keyring_retired (
    name        TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    PRIMARY KEY (name, fingerprint)
);

-- +goose Down
DROP TABLE keyring_retired;
