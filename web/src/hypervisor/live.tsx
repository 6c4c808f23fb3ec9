/**
 * The host and its operations, polled every few seconds, and messages about operations that end.
 */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, use, useEffect, useMemo, useRef, type ReactNode } from 'react';
import { body } from '../ui/client';
import type { StreamState } from '../ui/stream';
import { toast } from '../ui/toast';
import { api, type Host, type Operation } from './api';
import { operationTitle, underWay } from './states';

const pollMs = 3_000;

export interface Live {
  state: StreamState;
  /** Undefined until the first reading. */
  host: Host | undefined;
  /** Newest first. */
  operations: readonly Operation[] | undefined;
  /** When host and operations were read (milliseconds since 1970). */
  readAt: number;
  /** Why there has been no reading yet. */
  error: unknown;
  retry: () => void;
}

const LiveContext = createContext<Live | null>(null);

export function useLive(): Live {
  const live = use(LiveContext);
  if (!live) throw new Error('useLive needs a LiveProvider around it');
  return live;
}

async function read(signal: AbortSignal): Promise<{ host: Host; operations: Operation[] }> {
  const [host, operations] = await Promise.all([body(api.GET('/v1/host', { signal })), body(api.GET('/v1/operations', { params: { query: { limit: 100 } }, signal }))]);
  return { host, operations };
}

/** Reports the end of operations that were seen in progress, and refreshes what they changed. */
function useEnds(operations: readonly Operation[] | undefined): void {
  const queries = useQueryClient();
  const waiting = useRef<ReadonlySet<string>>(new Set());
  useEffect(() => {
    if (!operations) return;
    const ended = operations.filter((o) => waiting.current.has(o.id) && !underWay(o));
    waiting.current = new Set(operations.filter(underWay).map((o) => o.id));
    for (const o of ended) toast(`${operationTitle(o)}: ${o.state}${o.error ? `: ${o.error}` : ''}.`, o.state === 'succeeded' ? 'ok' : 'warn');
    if (ended.length > 0) for (const key of ['vms', 'images', 'templates', 'backups']) void queries.invalidateQueries({ queryKey: [key] });
  }, [operations, queries]);
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const { data, error, dataUpdatedAt: readAt, refetch } = useQuery({ queryKey: ['live'], queryFn: ({ signal }) => read(signal), refetchInterval: pollMs });
  useEnds(data?.operations);
  const live = useMemo<Live>(
    () => ({
      state: error ? 'reconnecting' : data ? 'live' : 'connecting',
      host: data?.host,
      operations: data?.operations,
      readAt,
      error: data ? undefined : (error ?? undefined),
      retry: () => void refetch(),
    }),
    [data, error, readAt, refetch],
  );
  return <LiveContext value={live}>{children}</LiveContext>;
}
