/**
 * Paged lists. The API returns plain arrays. The `Link` header (RFC 8288) contains the address of
 * the next page, with the cursor.
 */
import { keepPreviousData, useInfiniteQuery, type QueryKey } from '@tanstack/react-query';

export interface Page<T> {
  items: T[];
  next: string | undefined;
  /** How many there are in all, where the service says so. */
  total?: number;
}

/** The cursor in a Link header's rel="next", if there is a next page. */
export function nextCursor(link: string | null): string | undefined {
  for (const part of link?.split(/,(?=\s*<)/) ?? []) {
    const match = /^\s*<([^>]*)>(.*)$/.exec(part);
    if (!match || !/;\s*rel\s*=\s*"?(?:[^"]*\s)?next(?:\s[^"]*)?"?/i.test(match[2] ?? '')) continue;
    return new URL(match[1] ?? '', 'http://relative.invalid').searchParams.get('cursor') ?? undefined;
  }
  return undefined;
}

/** The loaded part of a list. */
export interface Pages<T> {
  /** Undefined until the first page is loaded. */
  rows: T[] | undefined;
  error: unknown;
  hasMore: boolean;
  /** How many there are in all, where the service says so. */
  total?: number | undefined;
  /** How many parts are loaded. Undefined for lists that come whole. */
  parts?: number;
  loadingMore: boolean;
  loadMore: () => void;
  refresh: () => void;
}

/**
 * Lists with more loaded pages are not refreshed in the background, since that takes one request
 * per page.
 */
const refreshedPages = 3;

/** Loads a list page by page. Refreshes the loaded pages as long as they are few. */
export function usePages<T>(
  key: QueryKey,
  load: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>,
  { refreshSeconds = 10, enabled = true }: { refreshSeconds?: number; enabled?: boolean } = {},
): Pages<T> {
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => load(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next,
    placeholderData: keepPreviousData,
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) <= refreshedPages ? refreshSeconds * 1000 : false),
    enabled,
  });
  return {
    rows: query.data?.pages.flatMap((p) => p.items),
    error: query.data ? undefined : (query.error ?? undefined),
    hasMore: query.hasNextPage,
    total: query.data?.pages.at(-1)?.total,
    ...(query.data && { parts: query.data.pages.length }),
    loadingMore: query.isFetchingNextPage,
    loadMore: () => void query.fetchNextPage(),
    refresh: () => void query.refetch(),
  };
}

/** Wraps an already loaded list in the form that tables use. */
export function wholeList<T>(rows: T[] | undefined, error?: unknown, refresh: () => void = () => undefined): Pages<T> {
  return { rows, error, hasMore: false, loadingMore: false, loadMore: () => undefined, refresh };
}
