/** Lists that the service pages by offset, with how many there are in all. */
import type { Page } from '../ui/paging';

/** The most rows of a part. */
const limit = 200;

/** Loads a part. The cursor is where it begins. */
export async function loadPart<T>(cursor: string | undefined, load: (part: { offset: number; limit: number }) => Promise<{ items: T[]; total: number }>): Promise<Page<T>> {
  const offset = Number(cursor ?? 0);
  const { items, total } = await load({ offset, limit });
  const end = offset + items.length;
  return { items, total, next: items.length > 0 && end < total ? String(end) : undefined };
}
