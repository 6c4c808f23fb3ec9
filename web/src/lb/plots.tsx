/** Traffic over time, since this page was opened. */
import { useMemo } from 'react';
import { Card } from '../ui/facts';
import { Plot, type Series } from '../ui/plot';
import { useLive } from './live';
import type { Past, Traffic } from './rates';

/** As high as the plot that follows, so that the page does not jump. */
const Measuring = () => (
  <p className="muted" style={{ minHeight: 206 }}>
    Measuring. The first rates are there in a few seconds.
  </p>
);

/** `of` must be the same function as long as it picks the same. */
export function TrafficPlots({ whose, of }: { /** As in "of the node". */ whose: string; of: (sample: Past) => Traffic | undefined }) {
  const { samples } = useLive();
  const { times, packets, flows } = useMemo(() => {
    const line = (label: string, kind: keyof Traffic, bad = false): Series => ({ label, values: samples.map((s) => of(s)?.[kind] ?? null), bad });
    return {
      times: samples.map((s) => s.at),
      packets: [line('Forwarded', 'packets'), line('Dropped', 'dropped', true)],
      flows: [line('New flows', 'flows')],
    };
  }, [samples, of]);
  const plot = (label: string, series: readonly Series[]) =>
    times.length > 1 ? <Plot label={label} times={times} series={series} unit="/s" /> : <Measuring />;
  return (
    <div className="grid">
      <Card title="Packets per second">{plot(`Packets ${whose}`, packets)}</Card>
      <Card title="New flows per second">{plot(`New flows ${whose}`, flows)}</Card>
    </div>
  );
}
