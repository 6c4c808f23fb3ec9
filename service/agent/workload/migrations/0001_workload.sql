-- +goose Up
CREATE TABLE workload_agent (
    one      BIGINT PRIMARY KEY, -- always 1
    instance TEXT NOT NULL,      -- in the label of this agent's containers
    pulled   BOOLEAN NOT NULL,   -- the control plane has said what is desired
    packs    TEXT NOT NULL       -- JSON
);
CREATE TABLE workloads (
    id       TEXT PRIMARY KEY,
    desired  TEXT NOT NULL,    -- JSON, as the control plane said it
    removed  BOOLEAN NOT NULL, -- it is no longer desired, its containers are not gone yet
    current  TEXT NOT NULL,    -- digest of the version that has proved itself; empty: none
    failed   TEXT NOT NULL,    -- digest of the version that has not; empty: none
    rollback TEXT NOT NULL,    -- why the control plane is to roll back; empty: it is not
    revision BIGINT NOT NULL,  -- that status speaks of
    status   TEXT NOT NULL,
    message  TEXT NOT NULL,
    reported BOOLEAN NOT NULL  -- the control plane has heard it
);
-- +goose Down
DROP TABLE workloads;
DROP TABLE workload_agent;
