-- +goose Up

-- The column search holds no final sigma any more. The service writes it again where there is one.
UPDATE sites SET search = '' WHERE search LIKE '%ς%';
UPDATE devices SET search = '' WHERE search LIKE '%ς%';

-- +goose Down
SELECT 1;
