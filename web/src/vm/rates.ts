/**
 * What a VM uses, from readings of its counters, which begin anew with each start of the VM. A
 * counter that has decreased has no rate until the next reading.
 */
import { short } from '../ui/number';
import type { Metrics } from './api';

export interface Reading extends Metrics {
  /** Unix seconds by this browser's clock. */
  at: number;
}

export interface Sample {
  at: number;
  /** Percent of one processor. */
  cpu: number;
  memoryMiB: number;
  /** Bytes per second, or null if they are not known. */
  disk: number | null;
  received: number | null;
  sent: number | null;
}

/** Three seconds between readings, and ten minutes of them. */
export const pollMs = 3_000;
export const mostSamples = 200;

/** The minimum time between two readings, in seconds. Shorter times make rates inaccurate. */
const shortest = 0.5;
/** After a longer pause, as of a tab in the background, a rate would hide what happened in it. */
const longest = 30;

/** Returns null if the readings are too close together or out of order. */
export function sampleOf(before: Reading | undefined, after: Reading): Sample | null {
  const seconds = before ? after.at - before.at : undefined;
  if (seconds !== undefined && !(seconds >= shortest)) return null;
  const rate = (of: (m: Metrics) => number) => {
    if (!before || seconds === undefined || seconds > longest) return null;
    const grown = of(after) - of(before);
    return grown < 0 ? null : grown / seconds;
  };
  return {
    at: after.at,
    cpu: after.cpu_usage,
    memoryMiB: after.memory_usage / 2 ** 20,
    disk: rate((m) => m.disk_usage),
    received: rate((m) => m.network_rx),
    sent: rate((m) => m.network_tx),
  };
}

const units = ['B/s', 'kB/s', 'MB/s', 'GB/s'] as const;

/** Bytes per second for display: 1500 is "1.5 kB/s". */
export function byteRate(bytes: number): string {
  let i = 0;
  for (; bytes >= 999.95 && i < units.length - 1; i++) bytes /= 1000;
  return `${short(bytes)} ${units[i]}`;
}
