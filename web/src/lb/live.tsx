/**
 * The current state of the node, polled every few seconds, and its rates since this page was
 * opened.
 */
import { useQuery } from '@tanstack/react-query';
import { createContext, use, useEffect, useMemo, useRef, useState, type ReactNode } from 'react';
import { body } from '../ui/client';
import type { StreamState } from '../ui/stream';
import { api } from './api';
import { ratesBetween, type Past, type Rates, type Reading } from './rates';

const pollMs = 2_000;
/** A node with many backends answers with megabytes, so it is polled less often. */
const manyBackends = 2_000;
const slowPollMs = 10_000;
/** Ten minutes of samples. Each has the rates of every VIP. */
const mostSamples = 300;
/** A daemon that accepts a request but does not answer in this time counts as down. */
const answerMs = 30_000;

export interface Live {
  state: StreamState;
  /** Undefined until the first reading. */
  reading: Reading | undefined;
  /** Why there has been no reading yet. */
  error: unknown;
  retry: () => void;
  /** Oldest first. */
  samples: readonly Past[];
  /** The last sample, which also has the rates of backends and drop reasons. */
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

export function LiveProvider({ children }: { children: ReactNode }) {
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
