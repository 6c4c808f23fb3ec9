/** Rates per second from two readings of the overview's minutes. */
import type { Overview } from './api';

export interface Sample {
  /** Unix seconds. */
  at: number;
  events: number;
  delivered: number;
  failed: number;
}

/**
 * The rates between two overviews, per second. Minutes that have left the hour do not count.
 * Returns null if no time has passed.
 */
export function rateBetween(before: Overview, after: Overview): Sample | null {
  const seconds = (Date.parse(after.generated_at) - Date.parse(before.generated_at)) / 1000;
  if (!(seconds > 0)) return null;
  const was = new Map(before.rates.map((m) => [m.minute, m]));
  // A minute that is missing in the earlier overview is entirely new, unless it is older than that
  // overview: then it was there, or was empty.
  const since = Date.parse(before.generated_at) - 120_000;
  const sum = { events: 0, delivered: 0, failed: 0 };
  for (const m of after.rates) {
    const old = was.get(m.minute);
    if (!old && Date.parse(m.minute) < since) continue;
    sum.events += m.events - (old?.events ?? 0);
    sum.delivered += m.delivered - (old?.delivered ?? 0);
    sum.failed += m.failed_attempts - (old?.failed_attempts ?? 0);
  }
  const per = (n: number) => Math.max(0, n) / seconds;
  return { at: Date.parse(after.generated_at) / 1000, events: per(sum.events), delivered: per(sum.delivered), failed: per(sum.failed) };
}

/**
 * The complete minutes (Unix seconds) within the last `span` minutes, oldest first. The current
 * minute is omitted, since its incomplete count would look like a drop. The API does not return the
 * minute that started before the span.
 */
export function endedMinutes(now: number, span: number): number[] {
  const present = Math.floor(now / 60_000) * 60;
  return Array.from({ length: span - 1 }, (_, i) => present - (span - 1 - i) * 60);
}

/** The last hour by minute. Minutes without events are missing in the response. */
export function lastHour(overview: Overview): { times: number[]; events: number[]; delivered: number[]; failed: number[] } {
  const by = new Map(overview.rates.map((m) => [Date.parse(m.minute) / 1000, m]));
  const times = endedMinutes(Date.parse(overview.generated_at), 60);
  const pick = (get: (m: Overview['rates'][number]) => number) => times.map((t) => (by.has(t) ? get(by.get(t) as Overview['rates'][number]) : 0));
  return { times, events: pick((m) => m.events), delivered: pick((m) => m.delivered), failed: pick((m) => m.failed_attempts) };
}
