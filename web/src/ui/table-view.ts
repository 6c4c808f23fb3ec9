/** The filter, order and columns of a table, as pure functions on the loaded rows. */

export type Sortable = string | number | null | undefined;

export interface Order {
  column: string;
  descending: boolean;
}

interface Comparable<T> {
  id: string;
  sort?: ((row: T) => Sortable) | undefined;
  text?: ((row: T) => string) | undefined;
}

/** Rows that contain every word of the filter, in any column and any case. */
export function filterRows<T>(rows: readonly T[], columns: readonly Comparable<T>[], filter: string): T[] {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [...rows];
  return rows.filter((row) => {
    const text = columns.map((c) => c.text?.(row) ?? String(c.sort?.(row) ?? '')).join('\n').toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

/** Sorts rows. Rows without a value come last in either order. The sort is stable. */
export function sortRows<T>(rows: readonly T[], columns: readonly Comparable<T>[], order: Order | null): T[] {
  const value = order && columns.find((c) => c.id === order.column)?.sort;
  if (!order || !value) return [...rows];
  const sign = order.descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const [noX, noY] = [x === null || x === undefined || x === '', y === null || y === undefined || y === ''];
    if (noX || noY) return Number(noX) - Number(noY);
    if (typeof x === 'number' && typeof y === 'number') return sign * (x - y);
    return sign * String(x).localeCompare(String(y), 'en', { numeric: true, sensitivity: 'base' });
  });
}

/** How many rows are shown at first. */
export const atOnce = 200;

/**
 * How many rows are shown at most. A browser needs a second for a thousand rows, and a quarter of a
 * minute for two thousand.
 */
const widest = 3 * atOnce;

/** The rows of a list that are shown, of which `end` is to be the last one: from the first to before the end. */
export function shownPart(total: number, end: number): { first: number; end: number } {
  const last = Math.min(end, total);
  return { first: Math.max(0, last - widest), end: last };
}

/** What `end` becomes when the rows before or after the shown ones are asked for. */
export const earlier = (total: number, end: number) => Math.max(widest, shownPart(total, end).end - 2 * atOnce);
export const later = (total: number, end: number) => shownPart(total, end).end + 2 * atOnce;

/** The order after a click on a column's head: ascending, descending, original. */
export function nextOrder(order: Order | null, column: string): Order | null {
  if (order?.column !== column) return { column, descending: false };
  return order.descending ? null : { column, descending: true };
}
