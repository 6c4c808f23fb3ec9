import { expect, it } from 'vitest';
import type { Snapshot, Volume } from '../api';
import { isWhole, treeOf } from './tree';

const snapshot = (id: string, dependents: number) => ({ id, dependents }) as Snapshot;
const volume = (id: string, source: string) => ({ id, source_snapshot_id: source }) as Volume;

it('volumes are children of the snapshot that they were made of', () => {
  const tree = treeOf([snapshot('new', 0), snapshot('old', 2)], [volume('a', 'old'), volume('b', 'other'), volume('c', ''), volume('d', 'old')]);
  expect(tree.map((b) => [b.snapshot.id, b.clones.map((v) => v.id), b.more])).toEqual([
    ['new', [], 0],
    ['old', ['a', 'd'], 0],
  ]);
});

it('what is not known by name is counted', () => {
  const snapshots = [snapshot('old', 3)];
  expect(treeOf(snapshots, [volume('a', 'old')])[0]?.more).toBe(2);
  expect(isWhole(snapshots, [volume('a', 'old')])).toBe(false);
  expect(isWhole(snapshots, [volume('a', 'old'), volume('b', 'old'), volume('c', 'old')])).toBe(true);
});

it('a clone that came since the snapshots were read is shown, too', () => {
  expect(treeOf([snapshot('old', 0)], [volume('a', 'old')])[0]).toMatchObject({ clones: [{ id: 'a' }], more: 0 });
});
