/** The jobs of the last day, polled every few seconds, and messages about jobs that end. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, use, useEffect, useMemo, useRef, type ReactNode } from 'react';
import { body } from '../ui/client';
import type { StreamState } from '../ui/stream';
import { toast } from '../ui/toast';
import { api, type Job } from './api';
import { jobTitle, underWay } from './states';

const pollMs = 3_000;

/** How many jobs are watched. The page of jobs has all of them. */
const watched = 100;

export interface Live {
  state: StreamState;
  /** Newest first. Undefined until the first reading. */
  jobs: readonly Job[] | undefined;
  /** When they were read (milliseconds since 1970). */
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

/** Reports the end of jobs that were seen in progress, and refreshes what they changed. */
function useEnds(jobs: readonly Job[] | undefined): void {
  const queries = useQueryClient();
  const waiting = useRef<ReadonlySet<string>>(new Set());
  useEffect(() => {
    if (!jobs) return;
    const ended = jobs.filter((j) => waiting.current.has(j.id) && !underWay(j));
    waiting.current = new Set(jobs.filter(underWay).map((j) => j.id));
    for (const j of ended) toast(`${jobTitle(j)}: ${j.status}${j.error ? `: ${j.error}` : ''}.`, j.status === 'completed' ? 'ok' : 'warn');
    if (ended.length > 0) for (const key of ['vms', 'backups', 'compliance', 'images', 'jobs']) void queries.invalidateQueries({ queryKey: [key] });
  }, [jobs, queries]);
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const {
    data: jobs,
    error,
    dataUpdatedAt: readAt,
    refetch,
  } = useQuery({ queryKey: ['live'], queryFn: ({ signal }) => body(api.GET('/api/jobs', { params: { query: { limit: watched } }, signal })), refetchInterval: pollMs });
  useEnds(jobs);
  const live = useMemo<Live>(
    () => ({
      state: error ? 'reconnecting' : jobs ? 'live' : 'connecting',
      jobs,
      readAt,
      error: jobs ? undefined : (error ?? undefined),
      retry: () => void refetch(),
    }),
    [jobs, error, readAt, refetch],
  );
  return <LiveContext value={live}>{children}</LiveContext>;
}
