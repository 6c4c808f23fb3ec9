/** The newest jobs and the maintenance state, polled every few seconds, and messages about jobs that end. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, use, useEffect, useMemo, useRef, type ReactNode } from 'react';
import { body } from '../ui/client';
import type { StreamState } from '../ui/stream';
import { toast } from '../ui/toast';
import { api, type Job, type Maintenance } from './api';
import { jobTitle, useNames, type Names } from './names';
import { jobText, underWay } from './states';

const pollMs = 3_000;

/** How many jobs are watched. The page of jobs has all of them. */
const watched = 100;

export interface Live {
  state: StreamState;
  /** Newest first. Undefined until the first reading. */
  jobs: readonly Job[] | undefined;
  maintenance: Maintenance | undefined;
  names: Names;
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

/** What a job may have changed. */
export const changedByJobs = ['volumes', 'jobs', 'live', 'tenants', 'clusters', 'backends', 'summary', 'osds', 'backups', 'buckets', 'images', 'groups', 'mirrors', 'schedules', 'trash', 'events'];

/** Reads again what jobs change. */
export function useRefresh(): () => Promise<unknown> {
  const queries = useQueryClient();
  return () => Promise.all(changedByJobs.map((key) => queries.invalidateQueries({ queryKey: [key] })));
}

/** Reports the end of jobs that were seen in progress, and refreshes what they changed. */
function useEnds(jobs: readonly Job[] | undefined, names: Names): void {
  const queries = useQueryClient();
  const waiting = useRef<ReadonlySet<string>>(new Set());
  useEffect(() => {
    if (!jobs) return;
    const ended = jobs.filter((j) => waiting.current.has(j.id) && !underWay(j));
    waiting.current = new Set(jobs.filter(underWay).map((j) => j.id));
    for (const j of ended) toast(`${jobTitle(j, names)}: ${jobText(j).text}${j.error ? `: ${j.error.message}` : ''}.`, j.state === 'succeeded' ? 'ok' : 'warn');
    if (ended.length > 0) for (const key of changedByJobs) if (key !== 'live') void queries.invalidateQueries({ queryKey: [key] });
  }, [jobs, names, queries]);
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const {
    data,
    error,
    dataUpdatedAt: readAt,
    refetch,
  } = useQuery({
    queryKey: ['live'],
    queryFn: async ({ signal }) => {
      const [jobs, maintenance] = await Promise.all([body(api.GET('/jobs', { params: { query: { limit: watched } }, signal })), body(api.GET('/maintenance', { signal }))]);
      return { jobs, maintenance };
    },
    refetchInterval: pollMs,
  });
  const names = useNames();
  useEnds(data?.jobs, names);
  const live = useMemo<Live>(
    () => ({
      state: error ? 'reconnecting' : data ? 'live' : 'connecting',
      jobs: data?.jobs,
      maintenance: data?.maintenance,
      names,
      readAt,
      error: data ? undefined : (error ?? undefined),
      retry: () => void refetch(),
    }),
    [data, error, names, readAt, refetch],
  );
  return <LiveContext value={live}>{children}</LiveContext>;
}
