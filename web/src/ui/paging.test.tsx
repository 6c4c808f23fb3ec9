import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { act, renderHook, waitFor } from '@testing-library/react';
import type { ReactNode } from 'react';
import { describe, expect, it } from 'vitest';
import { nextCursor, usePages, type Page } from './paging';

describe('nextCursor', () => {
  it.each([
    [null, undefined],
    ['', undefined],
    ['</api/v1/sites?cursor=abc&limit=10>; rel="next"', 'abc'],
    ['<https://example.com/api/v1/sites?limit=10&cursor=a%2Bb%3D>; rel=next', 'a+b='],
    ['</x?cursor=1>; rel="prev", </x?cursor=2>; rel="next"', '2'],
    ['</x?cursor=1>; rel="last"', undefined],
    ['</x?cursor=1>; title="rel"; rel="start next"', '1'],
    ['</x>; rel="next"', undefined],
  ])('reads %j as %j', (header, cursor) => {
    expect(nextCursor(header)).toBe(cursor);
  });
});

describe('usePages', () => {
  function within() {
    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    return { wrapper: ({ children }: { children: ReactNode }) => <QueryClientProvider client={client}>{children}</QueryClientProvider> };
  }

  it('loads page after page by the cursor of the one before, and ends with the last', async () => {
    const asked: (string | undefined)[] = [];
    const load = (cursor: string | undefined): Promise<Page<number>> => {
      asked.push(cursor);
      return Promise.resolve(cursor ? { items: [3], next: undefined } : { items: [1, 2], next: 'two' });
    };
    const { result } = renderHook(() => usePages(['n'], load), within());
    await waitFor(() => expect(result.current.rows).toEqual([1, 2]));
    expect(result.current.hasMore).toBe(true);
    act(() => result.current.loadMore());
    await waitFor(() => expect(result.current.rows).toEqual([1, 2, 3]));
    expect(result.current.hasMore).toBe(false);
    expect(asked).toEqual([undefined, 'two']);
  });

  it('gives the error of the first page', async () => {
    const { result } = renderHook(() => usePages(['n'], () => Promise.reject(new Error('no'))), within());
    await waitFor(() => expect(result.current.error).toEqual(new Error('no')));
    expect(result.current.rows).toBeUndefined();
  });
});
