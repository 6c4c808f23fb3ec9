import { expect, it } from 'vitest';
import type { Cluster } from './api';
import { subjectPath } from './links';

const clusters = [{ id: 'c1', backend_id: 'b1' } as Cluster];

it.each([
  ['cluster', 'c1', '/backends/b1'],
  ['cluster', 'unknown', '/backends'],
  ['backend', 'b2', '/backends/b2'],
  ['osd', 'c1:3', '/backends/b1#osds'],
  ['pool', 'p1', '/backends'],
  ['tenant', 'acme:bytes', '/tenants?filter=acme'],
  ['job', 'jobs:', '/jobs?state=failed'],
  ['audit', 'audit', '/audit'],
  ['of another kind', 'x', '/alerts'],
])('an alert about a %s %s leads to %s', (resource_type, resource_id, path) => {
  expect(subjectPath({ resource_type, resource_id }, clusters)).toBe(path);
});
