/**
 * Rates per second from two readings of the node's counters. Counters outlive the
 * daemon but not the configuration: one that is new, or that went back, has no
 * rate until the next reading, since nobody knows from where it began.
 */
import type { History, Node, VIP } from './api';

export interface Reading {
  /** Unix seconds, of this browser. */
  at: number;
  vips: readonly VIP[];
  node: Node;
}

/** Of a VIP, or of all together. */
export interface Traffic {
  packets: number;
  bytes: number;
  flows: number;
  /** Packets that no backend got: of a VIP those that were for it, of all together whatever the node dropped. */
  dropped: number;
}

export interface BackendRates {
  packets: number;
  bytes: number;
}

/** What is kept of a sample that is not the last one. */
export interface Past extends Traffic {
  at: number;
  vips: ReadonlyMap<string, Traffic>;
}

/** What happened between two readings, per second. Nothing stands for what is not known. */
export interface Rates extends Past {
  /** By id: a backend that serves several VIPs is counted once. */
  backends: ReadonlyMap<number, BackendRates>;
  drops: ReadonlyMap<string, number>;
}

/** Shorter times make rates jump, since the two readings take some time themselves. */
const shortest = 0.5;

/** Null when too little time has passed. */
export function ratesBetween(before: Reading, after: Reading): Rates | null {
  const seconds = after.at - before.at;
  if (!(seconds >= shortest)) return null;

  /** The rates of one thing's counters; undefined unless all went up, or stayed. */
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

/** A moment of a plot; undefined stands for what is not known. */
export interface Moment {
  at: number;
  traffic: Traffic | undefined;
}

/**
 * What the node remembers, and then what this page has measured, in this browser's time. Where
 * nothing is known in between, a moment says so, which breaks the line.
 */
export function withHistory(history: History, answeredAt: number, measured: readonly Moment[]): Moment[] {
  const ahead = Math.round(answeredAt - Date.parse(history.now) / 1000);
  const begins = measured[0]?.at ?? Infinity;
  const step = history.stepSeconds;
  const moments: Moment[] = [];
  const add = (at: number, traffic: Traffic | undefined, longest: number) => {
    const last = moments.at(-1);
    if (last && at - last.at > longest) moments.push({ at: last.at + step, traffic: undefined });
    moments.push({ at, traffic });
  };
  for (const { at, ...traffic } of history.points) {
    const moment = Date.parse(at) / 1000 + ahead;
    // What this page has measured is finer.
    if (moment + step > begins) break;
    add(moment, traffic, step);
  }
  // Up to two steps may have ended, or begun, since the last that was kept.
  for (const { at, traffic } of measured) add(at, traffic, 3 * step);
  return moments;
}

const steps = ['', 'k', 'M', 'G', 'T', 'P'];
const digits = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

function scaled(n: number): [text: string, prefix: string] {
  let i = 0;
  for (; n >= 999.95 && i < steps.length - 1; i++) n /= 1000;
  return [digits.format(n), steps[i] ?? ''];
}

/** Bytes a second as network people say them: 1500 is "12 kbit/s". */
export function bitRate(bytesPerSecond: number): string {
  const [n, prefix] = scaled(bytesPerSecond * 8);
  return `${n} ${prefix}bit/s`;
}

/** 1500 is "1.5 kB". */
export function byteCount(bytes: number): string {
  const [n, prefix] = scaled(bytes);
  return `${n} ${prefix}B`;
}
