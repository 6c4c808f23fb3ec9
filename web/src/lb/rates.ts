/**
 * Rates per second from two readings of the node's counters. Counters outlive the daemon, but not
 * changes of the configuration. A counter that is new, or that has decreased, has no rate until the
 * next reading, since its starting value is unknown.
 */
import type { Node, VIP } from './api';

export interface Reading {
  /** Unix seconds by this browser's clock. */
  at: number;
  vips: readonly VIP[];
  node: Node;
}

/** The traffic of a VIP, or of the whole node. */
export interface Traffic {
  packets: number;
  bytes: number;
  flows: number;
  /**
   * Packets that no backend got. For a VIP, only packets for it; for the node, everything that it
   * dropped.
   */
  dropped: number;
}

export interface BackendRates {
  packets: number;
  bytes: number;
}

/** The part of a sample that is kept when a newer one arrives. */
export interface Past extends Traffic {
  at: number;
  vips: ReadonlyMap<string, Traffic>;
}

/** Rates per second between two readings. Entries whose rate is unknown are missing. */
export interface Rates extends Past {
  /** By ID. A backend that serves several VIPs is counted once. */
  backends: ReadonlyMap<number, BackendRates>;
  drops: ReadonlyMap<string, number>;
}

/**
 * The minimum time between two readings, in seconds. Shorter times make rates inaccurate, since a
 * reading itself takes some time.
 */
const shortest = 0.5;

/** Returns null if too little time has passed. */
export function ratesBetween(before: Reading, after: Reading): Rates | null {
  const seconds = after.at - before.at;
  if (!(seconds >= shortest)) return null;

  /** The rates of one set of counters, or undefined if any of them has decreased. */
  const rates = <K extends string>(was: Record<K, number> | undefined, is: Record<K, number>): Record<K, number> | undefined => {
    if (!was) return undefined;
    const keys = Object.keys(is) as K[];
    if (keys.some((k) => is[k] < was[k])) return undefined;
    return Object.fromEntries(keys.map((k) => [k, (is[k] - was[k]) / seconds])) as Record<K, number>;
  };
  const each = <T, Key, K extends string>(was: Iterable<T>, is: Iterable<T>, key: (t: T) => Key, counters: (t: T) => Record<K, number>) => {
    const known = new Map([...was].map((t) => [key(t), counters(t)]));
    const found = new Map<Key, Record<K, number>>();
    for (const t of is) {
      const r = rates(known.get(key(t)), counters(t));
      if (r) found.set(key(t), r);
    }
    return found;
  };

  const vips = each(before.vips, after.vips, (v) => v.name, (v) => ({ packets: v.packets, bytes: v.bytes, flows: v.flows, dropped: v.droppedRateLimited + v.droppedNoBackend + v.unserved }));
  const serving = (vips: readonly VIP[]) => vips.flatMap((v) => v.backends);
  const backends = each(serving(before.vips), serving(after.vips), (b) => b.id, (b) => ({ packets: b.packets, bytes: b.bytes }));
  const reasons = each(Object.entries(before.node.drops), Object.entries(after.node.drops), ([name]) => name, ([, n]) => ({ n }));
  const sum = (numbers: Iterable<number>) => [...numbers].reduce((a, b) => a + b, 0);
  const drops = new Map([...reasons].map(([name, { n }]) => [name, n]));
  const all = (kind: keyof Traffic) => sum([...vips.values()].map((v) => v[kind]));
  return {
    at: after.at,
    packets: all('packets'),
    bytes: all('bytes'),
    flows: all('flows'),
    dropped: sum(drops.values()),
    vips,
    backends,
    drops,
  };
}

const steps = ['', 'k', 'M', 'G', 'T', 'P'];
const digits = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

function scaled(n: number): [text: string, prefix: string] {
  let i = 0;
  for (; n >= 999.95 && i < steps.length - 1; i++) n /= 1000;
  return [digits.format(n), steps[i] ?? ''];
}

/** A bit rate as is usual for networks: 1500 bytes per second are "12 kbit/s". */
export function bitRate(bytesPerSecond: number): string {
  const [n, prefix] = scaled(bytesPerSecond * 8);
  return `${n} ${prefix}bit/s`;
}

/** A number of bytes for display: 1500 is "1.5 kB". */
export function byteCount(bytes: number): string {
  const [n, prefix] = scaled(bytes);
  return `${n} ${prefix}B`;
}
