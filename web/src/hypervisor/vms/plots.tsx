/** The usage of a VM in the last five minutes, measured while its page is open. */
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Plot, type Series } from '../../ui/plot';
import { api, type Metrics } from '../api';
import { mostSamples, pollMs, sampleOf, type Sample } from '../rates';

/** Polls the VM's metrics every two seconds while it is running. Oldest first. */
export function useSamples(id: string, reading: boolean): readonly Sample[] {
  const { data } = useQuery({ queryKey: ['metrics', id], queryFn: ({ signal }) => body(api.GET('/v1/vms/{id}/metrics', { params: { path: { id } }, signal })), refetchInterval: pollMs, enabled: reading, retry: false });
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

type Kind = Exclude<keyof Sample, 'at'>;

const plots: readonly { title: string; unit: string; lines: readonly [label: string, kind: Kind][] }[] = [
  { title: 'Processors', unit: ' %', lines: [['Used, of one processor', 'cpu']] },
  { title: 'Memory', unit: ' MiB', lines: [['On the host', 'memoryMiB']] },
  { title: 'Disk', unit: ' kB/s', lines: [['Read', 'read'], ['Written', 'written']] },
  { title: 'Network', unit: ' kB/s', lines: [['Received', 'received'], ['Sent', 'sent']] },
];

/** Has the height of the plot that replaces it, so that the page does not jump. */
const Measuring = ({ text }: { text: string }) => (
  <p className="muted" style={{ minHeight: 206 }}>
    {text}
  </p>
);

export function Plots({ samples, reading }: { samples: readonly Sample[]; reading: boolean }) {
  const times = samples.map((s) => s.at);
  return (
    <div className="grid">
      {plots.map(({ title, unit, lines }) => (
        <Card key={title} title={title}>
          {times.length > 1 ? (
            <Plot label={`${title} of the VM`} times={times} unit={unit} series={lines.map(([label, kind]): Series => ({ label, values: samples.map((s) => s[kind]) }))} />
          ) : (
            <Measuring text={reading ? 'Measuring. The first figures are there in a few seconds.' : 'The VM does not run: there is nothing to measure.'} />
          )}
        </Card>
      ))}
    </div>
  );
}
