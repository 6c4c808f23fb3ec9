/**
 * Live data for the whole console: the activity stream, and the overview every few seconds.
 * Activity also shows which lists are outdated, so that pages refresh them.
 */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, use, useEffect, useMemo, useRef, useState, type ReactNode } from 'react';
import { body } from '../ui/client';
import { useSession } from '../ui/session';
import { useStream, type StreamState } from '../ui/stream';
import { api, session, type ActivityEntry, type Overview } from './api';
import { rateBetween, type Sample } from './rates';

const pollMs = 5_000;
/** A control plane that accepts a request but does not answer in this time counts as down. */
const answerMs = 10_000;
/**
 * Activity refreshes the overview early. Over shorter spans than this, rates would be inaccurate.
 */
const shortestMs = 4_000;
/** An hour of samples. */
const mostSamples = 720;
const mostActivity = 300;
/**
 * Activity comes in bursts. These are the minimum times between two updates of the page, and
 * between two refreshes of lists.
 */
const flushMs = 1_000;
const refreshMs = 3_000;

export interface Live {
  state: StreamState;
  /** Newest first. Undefined until it is loaded. */
  activity: readonly ActivityEntry[] | undefined;
  overview: Overview | undefined;
  overviewError: unknown;
  /** When the overview was read (milliseconds since 1970), if later requests failed. */
  silentSince: number | undefined;
  samples: readonly Sample[];
}

const LiveContext = createContext<Live | null>(null);

export function useLive(): Live {
  const live = use(LiveContext);
  if (!live) throw new Error('useLive needs a LiveProvider around it');
  return live;
}

/** The lists that an activity makes outdated. */
function staleBy(action: string): string[] {
  const [noun] = action.split('.');
  switch (noun) {
    case 'site':
      return ['sites', 'tokens', 'devices', 'deployments'];
    case 'campaign':
      return ['campaigns'];
    case 'deployment':
      return ['deployments'];
    case 'route':
      return ['routes', 'deadletters'];
    case 'ota':
    case 'device':
      return ['devices'];
  }
  return [];
}

/** Prepends new entries to the known ones, without duplicates. */
export function mergeActivity(known: readonly ActivityEntry[], fresh: readonly ActivityEntry[], most: number): ActivityEntry[] {
  const seen = new Set(known.map((e) => e.id));
  return [...fresh.filter((e) => !seen.has(e.id)).reverse(), ...known].slice(0, most);
}

export function LiveProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const { epoch } = useSession(session);
  const [activity, setActivity] = useState<readonly ActivityEntry[]>();
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const arrived = useRef<ActivityEntry[]>([]);

  const first = useQuery({
    queryKey: ['activity', 'first'],
    queryFn: ({ signal }) => body(api.GET('/activity', { params: { query: { limit: 100 } }, signal })),
    staleTime: Infinity,
    // The stream needs the first entries to know where to start.
    refetchInterval: (q) => (q.state.data ? false : pollMs),
  });
  const known = activity ?? first.data;

  const state = useStream({
    url: '/api/v1/stream',
    epoch,
    enabled: first.isSuccess,
    lastEventId: first.data?.[0]?.id ?? '0',
    onMessage: (message) => {
      if (message.event === 'activity') arrived.current.push(JSON.parse(message.data) as ActivityEntry);
    },
    onUnauthorized: session.expire,
  });

  useEffect(() => {
    const stale = new Set<string>();
    let refreshed = 0;
    const timer = setInterval(() => {
      const fresh = arrived.current;
      if (fresh.length > 0) {
        arrived.current = [];
        setActivity((now) => mergeActivity(now ?? first.data ?? [], fresh, mostActivity));
        for (const key of ['overview', 'alerts', ...fresh.flatMap((e) => staleBy(e.action))]) stale.add(key);
      }
      if (stale.size === 0 || Date.now() - refreshed < refreshMs) return;
      refreshed = Date.now();
      // Lists of names are long and change rarely. They are refreshed on their own.
      for (const key of stale) void client.invalidateQueries({ queryKey: [key], predicate: (q) => q.queryKey[1] !== 'names' });
      stale.clear();
    }, flushMs);
    return () => clearInterval(timer);
  }, [client, first.data]);

  const overview = useQuery({
    queryKey: ['overview'],
    queryFn: ({ signal }) => body(api.GET('/overview', { signal: AbortSignal.any([signal, AbortSignal.timeout(answerMs)]) })),
    refetchInterval: pollMs,
    retry: 1,
  });
  const silentSince = overview.data && overview.error ? overview.dataUpdatedAt : undefined;
  const before = useRef<Overview | undefined>(undefined);
  useEffect(() => {
    const after = overview.data;
    if (!after || after === before.current) return;
    if (before.current && Date.parse(after.generated_at) - Date.parse(before.current.generated_at) < shortestMs) return;
    const sample = before.current && rateBetween(before.current, after);
    before.current = after;
    if (sample) setSamples((s) => [...s, sample].slice(-mostSamples));
  }, [overview.data]);

  const live = useMemo(
    () => ({ state, activity: known, overview: overview.data, overviewError: overview.data ? undefined : (overview.error ?? undefined), silentSince, samples }),
    [state, known, overview.data, overview.error, silentSince, samples],
  );
  return <LiveContext value={live}>{children}</LiveContext>;
}
