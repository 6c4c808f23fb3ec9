/** The OSDs of a cluster as a tree: its hosts, and what runs on each. */
import type { OSD } from '../api';

export interface HostOfOSDs {
  /** Empty if it is not known. */
  name: string;
  osds: OSD[];
  up: number;
  in: number;
  used: number;
  capacity: number;
}

/** Hosts by name, each with its OSDs by number. What has no host comes last. */
export function hostsOf(osds: readonly OSD[]): HostOfOSDs[] {
  const hosts = new Map<string, OSD[]>();
  for (const osd of osds) hosts.set(osd.host, [...(hosts.get(osd.host) ?? []), osd]);
  const sum = (of: readonly OSD[], value: (o: OSD) => number) => of.reduce((total, o) => total + value(o), 0);
  return [...hosts]
    .sort(([a], [b]) => Number(a === '') - Number(b === '') || a.localeCompare(b, 'en', { numeric: true }))
    .map(([name, all]) => ({
      name,
      osds: all.sort((a, b) => a.id - b.id),
      up: all.filter((o) => o.up).length,
      in: all.filter((o) => o.in_cluster).length,
      used: sum(all, (o) => o.used_bytes),
      capacity: sum(all, (o) => o.capacity_bytes),
    }));
}
