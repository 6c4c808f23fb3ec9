/** Relative times, with the exact time as the title. */
import { useSyncExternalStore } from 'react';

const units: [limit: number, seconds: number, unit: Intl.RelativeTimeFormatUnit][] = [
  [60, 1, 'second'],
  [3600, 60, 'minute'],
  [86400, 3600, 'hour'],
  [86400 * 30, 86400, 'day'],
  [86400 * 365, 86400 * 30, 'month'],
  [Infinity, 86400 * 365, 'year'],
];

const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const absolute = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const day = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long' });
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

/** The time relative to now (milliseconds), as in "5 min. ago". */
export function ago(time: string, now: number): string {
  const seconds = (Date.parse(time) - now) / 1000;
  const size = Math.abs(seconds);
  if (size < 2) return 'now';
  for (const [limit, unitSeconds, unit] of units) {
    if (size < limit) return relative.format(Math.trunc(seconds / unitSeconds), unit);
  }
  return time;
}

/** Like `ago`, but for the past: a time in the future is shown as "now". */
export function past(time: string, now: number): string {
  return Date.parse(time) > now ? 'now' : ago(time, now);
}

/** The time zone of all times in the consoles, as in "Europe/Berlin". */
export const timeZone = () => absolute.resolvedOptions().timeZone;

// One timer updates all times on the page.
const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const l of listeners) l();
  }, 5_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The current time in milliseconds, updated every five seconds. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

/**
 * A relative time in the past, or `never` if there is none. If the server's clock is ahead of this
 * one, it shows "now".
 */
export function Time({ at, never = 'never' }: { at: string | null | undefined; never?: string }) {
  return <Relative at={at} never={never} say={past} />;
}

/** A relative time that may be in the future, such as an end time. */
export function EndTime({ at, never }: { at: string | null | undefined; never?: string }) {
  return <Relative at={at} never={never ?? 'never'} say={ago} />;
}

function Relative({ at, never, say }: { at: string | null | undefined; never: string; say: (time: string, now: number) => string }) {
  const current = useNow();
  if (!at) return <span className="muted">{never}</span>;
  return (
    <time className="nowrap" dateTime={at} title={absolute.format(new Date(at))}>
      {say(at, Math.max(current, now))}
    </time>
  );
}

/** The time of day; the date is in the title. */
export function Clock({ at }: { at: string }) {
  const date = new Date(at);
  return (
    <time className="nowrap" dateTime={at} title={absolute.format(date)}>
      {clock.format(date)}
    </time>
  );
}

/** A date with the time of day. */
export function DateTime({ at }: { at: string }) {
  return <time className="nowrap" dateTime={at}>{absolute.format(new Date(at))}</time>;
}

/** A date, for what is not known to the hour. */
export function Day({ at }: { at: string }) {
  const date = new Date(at);
  return (
    <time className="nowrap" dateTime={at} title={absolute.format(date)}>
      {day.format(date)}
    </time>
  );
}

/** A duration: 5400 is "1 h 30 min". */
export function duration(seconds: number): string {
  if (seconds < 1) return '0 s';
  const parts: string[] = [];
  let rest = Math.round(seconds);
  for (const [size, name] of [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']] as const) {
    const n = Math.floor(rest / size);
    if (n > 0) parts.push(`${n} ${name}`);
    rest -= n * size;
  }
  return parts.slice(0, 2).join(' ');
}
