-- +goose Up

-- Fingerprints of the keys that this database was made with. They open nothing.
CREATE TABLE keyring (
    name        TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL
);

-- +goose Down
DROP TABLE keyring;
