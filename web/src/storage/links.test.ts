import { expect, it } from 'vitest';
import type { Cluster } from './api';
import { imageAt, imagePath, resourcePath, subjectPath } from './links';

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

it.each([
  ['volume', '/volumes/a%2Fb'],
  ['image', '/volumes/a%2Fb'],
  ['backup', '/backups/a%2Fb'],
  ['bucket', '/buckets/a%2Fb'],
  ['group', '/groups/a%2Fb'],
  ['volume_group', '/groups/a%2Fb'],
  ['osd', undefined],
])('a job about a %s leads to %s', (type, path) => expect(resourcePath(type, 'a/b')).toBe(path));

it('any name of an image survives its address', () => {
  const image = { cluster_id: 'c1', pool: 'a b', name: '50%25 of ü?#&+' };
  expect(imageAt(imagePath(image))).toEqual({ cluster: 'c1', pool: 'a b', name: '50%25 of ü?#&+' });
});
