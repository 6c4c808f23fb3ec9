/** Traffic over time: from the node's history, and in finer steps since this page was opened. */
import { useMemo } from 'react';
import { body } from '../ui/client';
import { historyOf } from '../ui/history';
import { HistoryCard, type HistoryPlot } from '../ui/range';
import { api } from './api';
import { useLive } from './live';
import type { Past, Traffic } from './rates';

/** `of` must keep its identity as long as it selects the same data. */
export function TrafficPlots({ whose, of, vip }: { /** As in "of the node". */ whose: string; of: (sample: Past) => Traffic | undefined; /** The VIP's name. Undefined means the node. */ vip?: string }) {
  const { samples } = useLive();
  const measured = useMemo(() => samples.map((s) => ({ at: s.at, values: of(s) })), [samples, of]);
  const plots = useMemo(
    (): readonly HistoryPlot<Traffic>[] => [
      {
        title: 'Packets per second',
        label: `Packets ${whose}`,
        unit: '/s',
        lines: [
          { label: 'Forwarded', of: (t) => t.packets },
          { label: 'Dropped', of: (t) => t.dropped, bad: true },
        ],
      },
      { title: 'New flows per second', label: `New flows ${whose}`, unit: '/s', lines: [{ label: 'New flows', of: (t) => t.flows }] },
    ],
    [whose],
  );
  return (
    <HistoryCard<Traffic>
      title="Traffic"
      ranges={['1h', '6h', '24h']}
      source={{
        id: vip ?? '',
        read: async (query, signal) => {
          const h = await body(api.GET('/history', { params: { query: vip ? { ...query, vip } : query }, signal }));
          return historyOf(h.now, h.stepSeconds, h.points, ({ packets, bytes, flows, dropped }) => ({ packets, bytes, flows, dropped }));
        },
        measured,
        measuredHere: true,
      }}
      plots={plots}
      empty="Measuring. The first rates are there in a few seconds."
    />
  );
}
