-- +goose Up

-- The network policies of VMs. A row stays when a policy is removed, so that revisions never repeat.
CREATE TABLE network_policies (
    vm_id    TEXT PRIMARY KEY,
    revision BIGINT NOT NULL,
    policy   TEXT NOT NULL -- JSON; null: none
);

-- +goose Down
DROP TABLE network_policies;
