/**
 * The usage of a VM per second, from two readings of its counters. Counters restart with the VM. A
 * counter that has decreased has no rate until the next reading.
 */
import type { Metrics } from './api';

export interface Sample {
  /** Unix seconds by the daemon's clock. */
  at: number;
  /** Percent of one processor, or null if it is unknown. */
  cpu: number | null;
  memoryMiB: number;
  /** Kilobytes (1000) per second. */
  read: number | null;
  written: number | null;
  received: number | null;
  sent: number | null;
}

/** Five minutes, one reading every two seconds. */
export const pollMs = 2_000;
export const mostSamples = 150;

/** The minimum time between two readings, in seconds. Shorter times make rates inaccurate. */
const shortest = 0.5;

/** Returns null if the readings are too close together or out of order. */
export function sampleOf(before: Metrics | undefined, after: Metrics): Sample | null {
  const at = Date.parse(after.at) / 1000;
  const seconds = before ? at - Date.parse(before.at) / 1000 : undefined;
  if (seconds !== undefined && !(seconds >= shortest)) return null;
  const rate = (of: (m: Metrics) => number, scale: number) => {
    if (!before || seconds === undefined) return null;
    const grown = of(after) - of(before);
    return grown < 0 ? null : (grown / seconds) * scale;
  };
  return {
    at,
    cpu: rate((m) => m.cpu_seconds, 100),
    memoryMiB: after.memory_bytes / 2 ** 20,
    read: rate((m) => m.disk_read_bytes, 1e-3),
    written: rate((m) => m.disk_written_bytes, 1e-3),
    received: rate((m) => m.net_received_bytes, 1e-3),
    sent: rate((m) => m.net_sent_bytes, 1e-3),
  };
}
