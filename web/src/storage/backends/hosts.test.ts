import { expect, it } from 'vitest';
import type { OSD } from '../api';
import { abilities } from './capabilities';
import { hostsOf } from './hosts';

const osd = (id: number, host: string, more: Partial<OSD> = {}): OSD => ({ id, cluster_id: 'c', host, up: true, in_cluster: true, device_class: 'ssd', used_bytes: 1, capacity_bytes: 10, ...more });

it('OSDs are below their hosts, each in order, and hosts that are not known come last', () => {
  const hosts = hostsOf([osd(4, ''), osd(10, 'node-10'), osd(3, 'node-2', { up: false, in_cluster: false }), osd(1, 'node-2')]);
  expect(hosts.map((h) => [h.name, h.osds.map((o) => o.id), h.up, h.in, h.used, h.capacity])).toEqual([
    ['node-2', [1, 3], 1, 1, 2, 20],
    ['node-10', [10], 1, 1, 1, 10],
    ['', [4], 1, 1, 1, 10],
  ]);
});

it('abilities are in words', () => {
  expect(abilities({ block: true, file: false, object: false, snapshots: true, clone: true, expansion: true, replication: false })).toEqual({
    can: ['block volumes', 'snapshots', 'clones', 'expansion'],
    cannot: ['volumes for files', 'buckets', 'copies in another cluster'],
  });
});
