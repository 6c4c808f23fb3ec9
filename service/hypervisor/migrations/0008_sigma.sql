-- +goose Up

-- What a search looks at holds no final sigma any more. The daemon writes it again where there is one.
UPDATE vms SET search = '' WHERE search LIKE '%ς%';
UPDATE images SET search = '' WHERE search LIKE '%ς%';

-- +goose Down
SELECT 1;
