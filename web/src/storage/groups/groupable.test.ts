import { expect, it } from 'vitest';
import type { Backend, Cluster, Volume } from '../api';
import { groupable } from './list';

it('volumes that the gateway made in Ceph may be in a group', () => {
  const clusters = [{ id: 'c', backend_id: 'ceph' }, { id: 'd', backend_id: 'dir' }] as Cluster[];
  const backends = [{ id: 'ceph', backend_type: 'ceph' }, { id: 'dir', backend_type: 'nfs' }] as Backend[];
  const volume = (id: string, more: Partial<Volume> = {}) => ({ id, cluster_id: 'c', managed: true, kind: 'block', state: 'available', ...more }) as Volume;
  const all = [volume('a'), volume('b', { cluster_id: 'd' }), volume('c', { managed: false }), volume('d', { state: 'deleting' }), volume('e', { state: 'in-use' })];
  expect(groupable(all, clusters, backends).map((v) => v.id)).toEqual(['a', 'e']);
});
