import { expect, it } from 'vitest';
import type { Snapshot, Volume } from '../api';
import { branchOf, isWhole } from './tree';

const snapshot = (id: string, dependents: number) => ({ id, dependents }) as Snapshot;
const volume = (id: string, source: string) => ({ id, source_snapshot_id: source }) as Volume;

it('volumes are children of the snapshot that they were made of', () => {
  const volumes = [volume('a', 'old'), volume('b', 'other'), volume('c', ''), volume('d', 'old')];
  expect(branchOf(snapshot('old', 2), volumes)).toMatchObject({ clones: [{ id: 'a' }, { id: 'd' }], more: 0 });
  expect(branchOf(snapshot('new', 0), volumes)).toMatchObject({ clones: [], more: 0 });
});

it('what is not known by name is counted', () => {
  const snapshots = [snapshot('old', 3)];
  expect(branchOf(snapshot('old', 3), [volume('a', 'old')]).more).toBe(2);
  expect(isWhole(snapshots, [volume('a', 'old')])).toBe(false);
  expect(isWhole(snapshots, [volume('a', 'old'), volume('b', 'old'), volume('c', 'old')])).toBe(true);
});

it('a clone that came since the snapshots were read is shown, too', () => {
  expect(branchOf(snapshot('old', 0), [volume('a', 'old')])).toMatchObject({ clones: [{ id: 'a' }], more: 0 });
});
