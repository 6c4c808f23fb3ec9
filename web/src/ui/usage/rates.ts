/**
 * The usage of a VM per second, from two readings of its counters. Counters restart with the VM. A
 * counter that has decreased has no rate until the next reading.
 */
import { short } from '../number';

/** What a VM's process has used since it began. */
export interface Metrics {
  at: string;
  cpu_seconds: number;
  memory_bytes: number;
  disk_read_bytes: number;
  disk_written_bytes: number;
  net_received_bytes: number;
  net_sent_bytes: number;
}

/** A step of the history. */
export interface UsagePoint {
  at: string;
  cpu_percent: number;
  memory_bytes: number;
  disk_read_bytes_per_second: number;
  disk_written_bytes_per_second: number;
  net_received_bytes_per_second: number;
  net_sent_bytes_per_second: number;
}

export interface Usage {
  /** Percent of one processor, or null if it is unknown. */
  cpu: number | null;
  memoryMiB: number;
  /** Kilobytes (1000) per second. */
  read: number | null;
  written: number | null;
  received: number | null;
  sent: number | null;
}

export interface Sample extends Usage {
  /** Unix seconds by the daemon's clock. */
  at: number;
}

/** The usage in a step of the history. */
export const usageOf = (p: UsagePoint): Usage => ({
  cpu: p.cpu_percent,
  memoryMiB: p.memory_bytes / 2 ** 20,
  read: p.disk_read_bytes_per_second * 1e-3,
  written: p.disk_written_bytes_per_second * 1e-3,
  received: p.net_received_bytes_per_second * 1e-3,
  sent: p.net_sent_bytes_per_second * 1e-3,
});

const units = ['kB/s', 'MB/s', 'GB/s'] as const;

/** Kilobytes (1000) per second for display: 1500 is "1.5 MB/s". */
export function byteRate(kilobytes: number): string {
  const i = kilobytes < 999.95 ? 0 : kilobytes < 999_950 ? 1 : 2;
  return `${short(kilobytes / 1000 ** i)} ${units[i]}`;
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
