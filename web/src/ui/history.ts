/** The history that a service keeps for plots, and how it continues with what the page measures. */

/** The answer of a service, with values as they are plotted. */
export interface History<V> {
  /** Unix seconds by the service's clock, when it answered. */
  now: number;
  /** The length of a step in seconds. */
  step: number;
  /** In order of time. `at` is when the step begins, in Unix seconds. */
  points: readonly { at: number; values: V }[];
}

/** A moment of a plot. `values` is undefined where nothing is known, which interrupts the line. */
export interface Moment<V> {
  at: number;
  values: V | undefined;
}

/** The spans of time that plots can show, in seconds. */
export const spans = { '1h': 3_600, '6h': 21_600, '24h': 86_400, '2d': 172_800, '7d': 604_800, '30d': 2_592_000, '1y': 31_536_000 } as const;
export type Range = keyof typeof spans;

/** The range that services answer with if they are asked for none. */
export const usualRange: Range = '1h';

/** Points to ask for. A week fits in steps of an hour. */
export const mostPoints = 200;

/** The shortest step of a history, in seconds. Plots of such steps go on with what the page measures. */
const shortestStep = 60;

export const isFine = (history: History<unknown>) => history.step <= shortestStep;

/**
 * Where to begin for finer steps, in Unix seconds: if most of the range is from before anything was
 * known, the rest is worth it. Otherwise a VM that was made just now would have no plot until the
 * first hour is over.
 */
export function finerFrom(history: History<unknown>, range: Range): number | undefined {
  const first = history.points[0]?.at;
  return first !== undefined && !isFine(history) && history.now - first < spans[range] / 2 ? first : undefined;
}

/** Converts the times of an answer. `values` gets the length of a step in seconds. */
export function historyOf<P extends { at: string }, V>(now: string, step: number, points: readonly P[], values: (point: P, seconds: number) => V): History<V> {
  return { now: Date.parse(now) / 1000, step, points: points.map((p) => ({ at: Date.parse(p.at) / 1000, values: values(p, step) })) };
}

/**
 * The history, followed by what was measured. `ahead` is added to the times of the history, so that
 * both are by one clock.
 *
 * A step that is not over is left out: its count would look like a fall. If nothing is known of the
 * present, the last moment has no values.
 */
export function withHistory<V>({ now, step, points }: History<V>, measured: readonly Moment<V>[] = [], ahead = 0): Moment<V>[] {
  const begins = (measured[0]?.at ?? Infinity) - ahead;
  const moments: Moment<V>[] = [];
  const add = (moment: Moment<V>, longest: number) => {
    const last = moments.at(-1);
    if (last && moment.at - last.at > longest) moments.push({ at: last.at + step, values: undefined });
    moments.push(moment);
  };
  for (const { at, values } of points) {
    // What was measured is finer.
    if (at + step > Math.min(now, begins)) break;
    add({ at: at + ahead, values }, step);
  }
  // Up to two steps may have ended or started since the last point of the history.
  for (const moment of measured) add(moment, 3 * step);
  const last = moments.at(-1);
  if (last && now + ahead - last.at > 3 * step) moments.push({ at: last.at + step, values: undefined });
  return moments;
}

/** The shortest time line, in seconds. */
const shortestLine = 300;

/**
 * The time line of a plot, in Unix seconds: the range, but without the time before anything was
 * known.
 */
export function timeline(moments: readonly Moment<unknown>[], until: number, range: Range): [from: number, to: number] {
  const first = moments.find((m) => m.values !== undefined)?.at ?? until;
  return [Math.max(until - spans[range], Math.min(first, until - shortestLine)), until];
}

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const clockSeconds = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const date = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

/** A time on an axis, in Unix seconds. Midnight shows as the date. */
export function axisTime(at: number): string {
  const time = new Date(at * 1000);
  if (at % 60) return clockSeconds.format(time);
  return time.getHours() === 0 && time.getMinutes() === 0 ? date.format(time) : clock.format(time);
}
