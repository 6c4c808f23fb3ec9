/** When clusters will be full, from the forecast of the gateway. */
import { bytes } from '../../ui/size';
import type { Forecast } from '../api';

/** With fewer days, a line through them says nothing. */
const leastDays = 3;

const daySeconds = 86_400;

/** How far the plot looks ahead, in days. */
export const aheadDays = 90;

export const isKnown = (f: Pick<Forecast, 'days'>) => f.days >= leastDays;

/** The growth of a day with its sign: “+1.5 GiB a day, ± 200 MiB”. */
export function growthText(f: Pick<Forecast, 'days' | 'growth_bytes_per_day' | 'error_bytes_per_day'>): string {
  if (!isKnown(f)) return 'not known yet';
  const { growth_bytes_per_day: growth, error_bytes_per_day: error } = f;
  return `${growth < 0 ? '−' : '+'}${bytes(Math.abs(growth))} a day, ± ${bytes(error)}`;
}

export interface Ahead {
  /** Unix seconds. */
  times: number[];
  likely: number[];
  /** With the largest and the smallest growth within the error. */
  most: number[];
  least: number[];
  capacity: number[];
}

/** The use of the next days, from now (Unix seconds). A cluster is never more than full, nor less than empty. */
export function ahead(
  { raw_capacity_bytes: capacity, used_capacity_bytes: used }: { raw_capacity_bytes: number; used_capacity_bytes: number },
  { growth_bytes_per_day: growth, error_bytes_per_day: error }: Pick<Forecast, 'growth_bytes_per_day' | 'error_bytes_per_day'>,
  now: number,
): Ahead {
  const days = Array.from({ length: aheadDays + 1 }, (_, day) => day);
  const line = (perDay: number) => days.map((day) => Math.min(capacity, Math.max(0, used + day * perDay)));
  return { times: days.map((day) => now + day * daySeconds), likely: line(growth), most: line(growth + error), least: line(growth - error), capacity: days.map(() => capacity) };
}
