-- +goose Up
-- For lists of what was done to one thing, and of what was refused.
CREATE INDEX audit_by_target ON audit_entries (target, seq);
CREATE INDEX audit_by_result ON audit_entries (result, seq);

-- +goose Down
DROP INDEX audit_by_result;
DROP INDEX audit_by_target;
