/** The snapshots of a volume, each with the volumes that were made of it. */
import type { Snapshot, Volume } from '../api';

export interface Branch {
  snapshot: Snapshot;
  /** The volumes that were made of it. */
  clones: Volume[];
  /** How many more there are, which are not known by name. */
  more: number;
}

/** `volumes` need not be all that there are. */
export function branchOf(snapshot: Snapshot, volumes: readonly Volume[]): Branch {
  const clones = volumes.filter((v) => v.source_snapshot_id === snapshot.id);
  return { snapshot, clones, more: Math.max(0, snapshot.dependents - clones.length) };
}

/** Whether all volumes that were made of the snapshots are known. */
export const isWhole = (snapshots: readonly Snapshot[], volumes: readonly Volume[]) => snapshots.every((s) => branchOf(s, volumes).more === 0);
