/** The node as it is now, read every few seconds, and what happened since this page was opened. */
import { useQuery } from '@tanstack/react-query';
import { createContext, use, useEffect, useMemo, useRef, useState, type ReactNode } from 'react';
import { ApiError, body } from '../ui/client';
import type { StreamState } from '../ui/stream';
import { api } from './api';
import { ratesBetween, type Past, type Rates, type Reading } from './rates';

const pollMs = 2_000;
/** A node with many backends answers with megabytes: it is asked less often. */
const manyBackends = 2_000;
const slowPollMs = 10_000;
/** Ten minutes of samples, each of which has the rates of every VIP. */
const mostSamples = 300;
/** A daemon that takes the question and says nothing is as good as none. */
const answerMs = 30_000;

export interface Live {
  state: StreamState;
  /** Undefined until it is read. */
  reading: Reading | undefined;
  /** Why nothing was ever read. */
  error: unknown;
  retry: () => void;
  /** Oldest first. */
  samples: readonly Past[];
  /** The last sample, of backends and reasons too. */
  now: Rates | undefined;
}

const LiveContext = createContext<Live | null>(null);

export function useLive(): Live {
  const live = use(LiveContext);
  if (!live) throw new Error('useLive needs a LiveProvider around it');
  return live;
}

async function read(ended: AbortSignal): Promise<Reading> {
  const signal = AbortSignal.any([ended, AbortSignal.timeout(answerMs)]);
  const [vips, node] = await Promise.all([body(api.GET('/vips', { signal })), body(api.GET('/node', { signal }))]);
  return { at: Date.now() / 1000, vips, node };
}

function pollEvery(reading: Reading | undefined): number {
  const backends = reading?.vips.reduce((n, v) => n + v.backends.length, 0) ?? 0;
  return backends > manyBackends ? slowPollMs : pollMs;
}

export function LiveProvider({ onLocked, children }: { /** The node has come to ask for a key. */ onLocked: () => void; children: ReactNode }) {
  const query = useQuery({ queryKey: ['node'], queryFn: ({ signal }) => read(signal), refetchInterval: (q) => pollEvery(q.state.data), refetchOnWindowFocus: true });
  const { data: reading, error, refetch } = query;
  const [samples, setSamples] = useState<readonly Past[]>([]);
  const [now, setNow] = useState<Rates>();
  const before = useRef<Reading | undefined>(undefined);

  useEffect(() => {
    if (!reading || reading === before.current) return;
    const sample = before.current && ratesBetween(before.current, reading);
    before.current = reading;
    if (!sample) return;
    setNow(sample);
    const { backends: _, drops: __, ...past } = sample;
    setSamples((s) => [...s, past].slice(-mostSamples));
  }, [reading]);

  useEffect(() => {
    if (error instanceof ApiError && error.status === 401) onLocked();
  }, [error, onLocked]);

  const live = useMemo<Live>(
    () => ({
      state: error ? 'reconnecting' : reading ? 'live' : 'connecting',
      reading,
      error: reading ? undefined : (error ?? undefined),
      retry: () => void refetch(),
      samples,
      now,
    }),
    [error, reading, refetch, samples, now],
  );
  return <LiveContext value={live}>{children}</LiveContext>;
}
