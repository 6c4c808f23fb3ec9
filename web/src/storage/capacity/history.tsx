/** How full the clusters were, and how they did. */
import { body } from '../../ui/client';
import { historyOf } from '../../ui/history';
import { HistoryCard, type HistoryPlot } from '../../ui/range';
import { bytes } from '../../ui/size';
import { api, type CapacityPoint, type Condition } from '../api';

export interface Measured {
  used: number;
  capacity: number;
  /** How bad it was; null if it was not known. */
  health: number | null;
}

const levels: readonly Condition[] = ['ok', 'warning', 'error'];

/** A point of the plots. The worst health of a step counts. */
export const measuredOf = (p: CapacityPoint): Measured => ({
  used: p.used_capacity_bytes,
  capacity: p.raw_capacity_bytes,
  health: p.health === 'unknown' ? null : levels.indexOf(p.health),
});

/** The word on the axis of the plot of health. Between the levels there is none. */
export const levelText = (level: number) => levels[level] ?? '';

const plots: readonly HistoryPlot<Measured>[] = [
  {
    title: 'Capacity',
    label: 'Capacity of the clusters',
    format: bytes,
    lines: [
      { label: 'Used', of: (m) => m.used },
      { label: 'In all', of: (m) => m.capacity },
    ],
  },
  { title: 'Worst health', label: 'Worst health of the clusters', format: levelText, lines: [{ label: 'Health', of: (m) => m.health }] },
];

/** The plots of one cluster, or of all together. */
export function CapacityHistory({ cluster }: { cluster?: string }) {
  return (
    <HistoryCard<Measured>
      title="History"
      ranges={['24h', '7d', '30d', '1y']}
      source={{
        id: `capacity ${cluster ?? ''}`,
        read: async (query, signal) => {
          const h = await body(api.GET('/metrics/history', { params: { query: { ...query, ...(cluster && { cluster }) } }, signal }));
          return historyOf(h.now, h.step_seconds, h.points, measuredOf);
        },
      }}
      plots={plots}
      empty="It is measured once a minute. The first figures are there in a few minutes."
    />
  );
}
