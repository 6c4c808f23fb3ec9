/** The usage of a VM: from its history, and in finer steps since its page was opened. */
import { useQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useRef, useState } from 'react';
import { historyOf } from '../history';
import { HistoryCard, type HistoryPlot } from '../range';
import { byteRate, mostSamples, pollMs, sampleOf, usageOf, type Metrics, type Sample, type Usage, type UsagePoint } from './rates';

/** How a service is asked what a VM uses. */
export interface Measured {
  /** Identifies the VM within this console. */
  id: string;
  /** The counters, or undefined if the VM does not run. */
  metrics: (signal: AbortSignal) => Promise<Metrics | undefined>;
  history: (query: { since?: string; points: number }, signal: AbortSignal) => Promise<{ now: string; step_seconds: number; points: UsagePoint[] }>;
}

/** Polls the VM's metrics every two seconds while it is running. Oldest first. */
export function useSamples({ id, metrics }: Measured, reading: boolean): readonly Sample[] {
  const { data } = useQuery({ queryKey: ['metrics', id], queryFn: async ({ signal }) => (await metrics(signal)) ?? null, refetchInterval: pollMs, enabled: reading, retry: false });
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const before = useRef<Metrics | undefined>(undefined);
  useEffect(() => {
    if (!data || data === before.current) return;
    const sample = sampleOf(before.current, data);
    if (!sample) return;
    before.current = data;
    setSamples((s) => [...s, sample].slice(-mostSamples));
  }, [data]);
  return samples;
}

const plots: readonly HistoryPlot<Usage>[] = [
  { title: 'Processors', label: 'Processors of the VM', unit: ' %', lines: [{ label: 'Used, of one processor', of: (u) => u.cpu }] },
  { title: 'Memory', label: 'Memory of the VM', unit: ' MiB', lines: [{ label: 'On the host', of: (u) => u.memoryMiB }] },
  {
    title: 'Disk',
    label: 'Disk of the VM',
    format: byteRate,
    lines: [
      { label: 'Read', of: (u) => u.read },
      { label: 'Written', of: (u) => u.written },
    ],
  },
  {
    title: 'Network',
    label: 'Network of the VM',
    format: byteRate,
    lines: [
      { label: 'Received', of: (u) => u.received },
      { label: 'Sent', of: (u) => u.sent },
    ],
  },
];

export function Plots({ of: { id, history }, samples, reading }: { of: Measured; samples: readonly Sample[]; reading: boolean }) {
  const measured = useMemo(() => {
    // The first reading has no rates yet. The line goes on from the history to the second one.
    const known = samples[0]?.cpu === null ? samples.slice(1) : samples;
    return known.map(({ at, ...values }) => ({ at, values }));
  }, [samples]);
  return (
    <HistoryCard<Usage>
      title="Usage"
      ranges={['1h', '6h', '24h', '7d']}
      source={{
        id,
        read: async (query, signal) => {
          const h = await history(query, signal);
          return historyOf(h.now, h.step_seconds, h.points, usageOf);
        },
        measured,
      }}
      plots={plots}
      empty={reading ? 'Measuring. The first figures are there in a few seconds.' : 'The VM did not run in this time: there was nothing to measure.'}
    />
  );
}
