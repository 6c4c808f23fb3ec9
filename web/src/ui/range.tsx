/** Plots of a service's history, with a choice of the time that they show. */
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo, type ReactNode } from 'react';
import { useParam } from './address';
import { Card } from './facts';
import { finerFrom, isFine, mostPoints, spans, timeline, usualRange, withHistory, type History, type Moment, type Range } from './history';
import { Failure } from './notice';
import { Plot, type Series } from './plot';

const labels: Record<Range, string> = { '1h': '1 hour', '6h': '6 hours', '24h': '24 hours', '2d': '2 days', '7d': '7 days', '30d': '30 days', '1y': '1 year' };

/** Buttons, one of which is pressed. */
export function Ranges({ ranges, value, onChange }: { ranges: readonly Range[]; value: Range; onChange: (range: Range) => void }) {
  return (
    <div className="ranges" role="group" aria-label="Time that the plots show">
      {ranges.map((range) => (
        <button key={range} type="button" aria-pressed={range === value} onClick={() => onChange(range)}>
          {labels[range]}
        </button>
      ))}
    </div>
  );
}

/** One plot: how it draws the values of a moment. */
export interface HistoryPlot<V> {
  title: string;
  /** The name of the plot for people who cannot see it. */
  label: string;
  unit?: string;
  /** Formats values with their unit, instead of `unit`. */
  format?: (value: number) => string;
  lines: readonly { label: string; of: (values: V) => number | null; bad?: boolean }[];
}

export interface Source<V> {
  /** Identifies what is plotted, within this console. */
  id: string;
  /** Asks the service. `since` is absent for the last hour. */
  read: (query: { since?: string; points: number }, signal: AbortSignal) => Promise<History<V>>;
  /** What the page has measured since it was opened, oldest first. Histories in fine steps go on with it. */
  measured?: readonly Moment<V>[];
  /** The times of `measured` are by this browser's clock instead of the service's. */
  measuredHere?: boolean;
}

const againMs = 60_000;

/** The service's clock minus this one's, in seconds. Undefined until the service has answered. */
let serviceAhead: number | undefined;

function useHistory<V>({ id, read }: Source<V>, range: Range) {
  return useQuery({
    queryKey: ['history', id, range],
    queryFn: async ({ signal }) => {
      const ask = async (since?: number) => {
        const history = await read({ ...(since !== undefined && { since: new Date(since * 1000).toISOString() }), points: mostPoints }, signal);
        serviceAhead = history.now - Date.now() / 1000;
        return { history, ahead: serviceAhead, range };
      };
      // The service decides what time it is.
      const usual = await (range === usualRange || serviceAhead === undefined ? ask() : undefined);
      if (usual && range === usualRange) return usual;
      const whole = await ask(Date.now() / 1000 + (serviceAhead ?? 0) - spans[range]);
      const since = finerFrom(whole.history, range);
      return since === undefined ? whole : ask(since);
    },
    refetchInterval: againMs,
    retry: false,
    // While another range is loaded, the plots keep the one that they show.
    placeholderData: (before, query) => (query?.queryKey[1] === id ? keepPreviousData(before) : undefined),
  });
}

/** The moments of all plots of a page, and the time that they show. */
function useMoments<V>(source: Source<V>, range: Range) {
  const { data, error, refetch } = useHistory(source, range);
  const { measured, measuredHere } = source;
  const shown = useMemo(() => {
    const tail = !data || isFine(data.history) ? (measured ?? []) : [];
    const ahead = data && measuredHere ? -Math.round(data.ahead) : 0;
    const moments = data ? withHistory(data.history, tail, ahead) : tail;
    const until = Math.max(data ? data.history.now + ahead : 0, moments.at(-1)?.at ?? 0);
    const [from, to] = timeline(moments, until, data?.range ?? range);
    return { moments: moments.filter((m) => m.at >= from), from, to };
  }, [data, measured, measuredHere, range]);
  return { ...shown, loaded: data !== undefined, error: data ? undefined : error, retry: () => void refetch() };
}

/** A card of plots that show the same time. The choice of the time is in the address. */
export function HistoryCard<V>({
  title,
  source,
  ranges,
  plots,
  empty,
  actions,
  children,
}: {
  title: string;
  source: Source<V>;
  /** The first one is the usual one. */
  ranges: readonly Range[];
  /** It must keep its identity. */
  plots: readonly HistoryPlot<V>[];
  /** What is said when there is nothing to show yet. */
  empty: string;
  actions?: ReactNode;
  children?: ReactNode;
}) {
  const [range, setRange] = useParam<Range>('range', ranges[0] ?? usualRange, ranges);
  const { moments, from, to, loaded, error, retry } = useMoments(source, range);
  const times = useMemo(() => moments.map((m) => m.at), [moments]);
  const series = useMemo(
    () =>
      plots.map((p) =>
        p.lines.map(({ label, of, bad }): Series => ({ label, values: moments.map((m) => (m.values === undefined ? null : of(m.values))), ...(bad && { bad }) })),
      ),
    [plots, moments],
  );
  const known = moments.filter((m) => m.values !== undefined).length > 1;
  return (
    <Card
      title={title}
      actions={
        <>
          {actions}
          <Ranges ranges={ranges} value={range} onChange={setRange} />
        </>
      }
    >
      <div className="stack">
        {error && !known ? (
          <Failure error={error} retry={retry} />
        ) : (
          <div className={plots.length > 1 ? 'plots' : undefined}>
            {plots.map((p, i) => (
              <div key={p.label}>
                {plots.length > 1 && <h3 className="plot-title">{p.title}</h3>}
                {known ? (
                  <Plot label={p.label} times={times} from={from} to={to} series={series[i] ?? []} unit={p.unit} format={p.format} />
                ) : (
                  // As high as the plot that replaces it, so that the page does not jump.
                  <p className="muted" style={{ minHeight: 206 }}>
                    {loaded ? empty : 'Loading…'}
                  </p>
                )}
              </div>
            ))}
          </div>
        )}
        {children}
      </div>
    </Card>
  );
}
