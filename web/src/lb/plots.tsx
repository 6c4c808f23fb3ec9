/**
 * Traffic of the last hour: per minute from the node's history, and in finer steps since this page
 * was opened.
 */
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { body } from '../ui/client';
import { Card } from '../ui/facts';
import { Plot, type Series } from '../ui/plot';
import { api } from './api';
import { useLive } from './live';
import { withHistory, type Past, type Traffic } from './rates';

const historyEveryMs = 60_000;

/** The last hour of a VIP or of the node. Undefined until it is loaded. */
function useHistory(vip: string | undefined) {
  const { data } = useQuery({
    queryKey: ['history', vip ?? ''],
    queryFn: async ({ signal }) => {
      const history = await body(api.GET('/history', { params: { query: vip ? { vip } : {} }, signal }));
      return { history, answeredAt: Date.now() / 1000 };
    },
    refetchInterval: historyEveryMs,
    retry: false,
  });
  return data;
}

/** Has the height of the plot that replaces it, so that the page does not jump. */
const Measuring = () => (
  <p className="muted" style={{ minHeight: 206 }}>
    Measuring. The first rates are there in a few seconds.
  </p>
);

/** `of` must keep its identity as long as it selects the same data. */
export function TrafficPlots({ whose, of, vip }: { /** As in "of the node". */ whose: string; of: (sample: Past) => Traffic | undefined; /** The VIP's name. Undefined means the node. */ vip?: string }) {
  const { samples } = useLive();
  const past = useHistory(vip);
  const { times, packets, flows } = useMemo(() => {
    const measured = samples.map((s) => ({ at: s.at, traffic: of(s) }));
    const moments = past ? withHistory(past.history, past.answeredAt, measured) : measured;
    const line = (label: string, kind: keyof Traffic, bad = false): Series => ({ label, values: moments.map((m) => m.traffic?.[kind] ?? null), bad });
    return {
      times: moments.map((m) => m.at),
      packets: [line('Forwarded', 'packets'), line('Dropped', 'dropped', true)],
      flows: [line('New flows', 'flows')],
    };
  }, [samples, past, of]);
  const plot = (label: string, series: readonly Series[]) =>
    times.length > 1 ? <Plot label={label} times={times} series={series} unit="/s" /> : <Measuring />;
  return (
    <div className="grid">
      <Card title="Packets per second">{plot(`Packets ${whose}`, packets)}</Card>
      <Card title="New flows per second">{plot(`New flows ${whose}`, flows)}</Card>
    </div>
  );
}
