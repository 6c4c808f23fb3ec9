/** Rates per second, from the history and from two readings of the overview's minutes. */
import type { HistoryPoint, Overview } from './api';

/** Per second. */
export interface Rates {
  /** Events accepted; zero for a route. */
  events: number;
  delivered: number;
  failed: number;
  dead: number;
}

export interface Sample extends Rates {
  /** Unix seconds. */
  at: number;
}

/** The rates of a step of the history, which is some seconds long. */
export const ratesOf = (p: HistoryPoint, seconds: number): Rates => ({
  events: (p.events ?? 0) / seconds,
  delivered: p.delivered / seconds,
  failed: p.failed_attempts / seconds,
  dead: p.dead_lettered / seconds,
});

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
  const sum = { events: 0, delivered: 0, failed: 0, dead: 0 };
  for (const m of after.rates) {
    const old = was.get(m.minute);
    if (!old && Date.parse(m.minute) < since) continue;
    sum.events += m.events - (old?.events ?? 0);
    sum.delivered += m.delivered - (old?.delivered ?? 0);
    sum.failed += m.failed_attempts - (old?.failed_attempts ?? 0);
    sum.dead += m.dead_lettered - (old?.dead_lettered ?? 0);
  }
  const per = (n: number) => Math.max(0, n) / seconds;
  return { at: Date.parse(after.generated_at) / 1000, events: per(sum.events), delivered: per(sum.delivered), failed: per(sum.failed), dead: per(sum.dead) };
}
