/**
 * What a VM uses per second, from two readings of its counters. They begin anew when
 * the VM starts: what went back has no rate until the next reading.
 */
import type { Metrics } from './api';

export interface Sample {
  /** Unix seconds, of the daemon. */
  at: number;
  /** Percent of one processor; null while it is not known. */
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

/** Shorter times make rates jump. */
const shortest = 0.5;

/** Null when the readings are too near, or the second is not the later one. */
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
