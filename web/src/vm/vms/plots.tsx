/** What a VM uses, measured since its page was opened. */
import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Failure } from '../../ui/notice';
import { Plot } from '../../ui/plot';
import { api, type VM } from '../api';
import { at } from '../links';
import { byteRate, mostSamples, pollMs, sampleOf, type Reading, type Sample } from '../rates';
import { alive } from '../states';

function useSamples(vm: VM): { samples: readonly Sample[]; error: unknown } {
  const { data, error } = useQuery({
    queryKey: ['metrics', vm.id],
    queryFn: async ({ signal }): Promise<Reading> => ({ ...(await body(api.GET('/api/vms/{name}/metrics', { ...at(vm), signal }))), at: Date.now() / 1000 }),
    refetchInterval: pollMs,
    enabled: alive(vm),
    retry: false,
  });
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const before = useRef<Reading | undefined>(undefined);
  useEffect(() => {
    if (!data || data === before.current) return;
    const sample = sampleOf(before.current, data);
    if (!sample) return;
    before.current = data;
    setSamples((s) => [...s, sample].slice(-mostSamples));
  }, [data]);
  return { samples, error };
}

const plots: readonly { title: string; label: string; unit?: string; format?: (n: number) => string; lines: readonly { label: string; of: (s: Sample) => number | null }[] }[] = [
  { title: 'Processors', label: 'Processors of the VM', unit: ' %', lines: [{ label: 'Used, of one processor', of: (s) => s.cpu }] },
  { title: 'Memory', label: 'Memory of the VM', unit: ' MiB', lines: [{ label: 'On the host', of: (s) => s.memoryMiB }] },
  { title: 'Disk', label: 'Disk of the VM', format: byteRate, lines: [{ label: 'Read and written', of: (s) => s.disk }] },
  {
    title: 'Network',
    label: 'Network of the VM',
    format: byteRate,
    lines: [
      { label: 'Received', of: (s) => s.received },
      { label: 'Sent', of: (s) => s.sent },
    ],
  },
];

export function Plots({ vm }: { vm: VM }) {
  const { samples, error } = useSamples(vm);
  // The first reading has no rates yet.
  const shown = samples.slice(1);
  const times = shown.map((s) => s.at);
  const saying = alive(vm) ? 'Measuring. The first figures are there in a few seconds.' : 'The VM is not running: there is nothing to measure.';
  return (
    <Card title="Usage since this page was opened">
      {error && shown.length < 2 ? (
        <Failure error={error} />
      ) : (
        <div className="plots">
          {plots.map((p) => (
            <div key={p.label}>
              <h3 className="plot-title">{p.title}</h3>
              {shown.length > 1 ? (
                <Plot label={p.label} times={times} series={p.lines.map((l) => ({ label: l.label, values: shown.map(l.of) }))} unit={p.unit} format={p.format} />
              ) : (
                // As high as the plot that replaces it, so that the page does not jump.
                <p className="muted" style={{ minHeight: alive(vm) ? 206 : undefined }}>
                  {saying}
                </p>
              )}
            </div>
          ))}
        </div>
      )}
    </Card>
  );
}
