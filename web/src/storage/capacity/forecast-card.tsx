/** When a cluster will be full: in words, and as a plot with the error of the forecast. */
import { useMemo, type ReactNode } from 'react';
import { Card, Facts } from '../../ui/facts';
import { plural } from '../../ui/number';
import { Plot } from '../../ui/plot';
import { bytes } from '../../ui/size';
import { Day } from '../../ui/time';
import type { Cluster, Forecast } from '../api';
import { ahead, aheadDays, growthText, isKnown } from './forecast';

/** When it is full, with the exact dates as titles. */
export function FullAt({ forecast: f }: { forecast: Forecast }) {
  if (!isKnown(f)) return <span className="muted">not known: it takes three days of use, and {plural(f.days, 'day is', 'days are')} known</span>;
  return (
    <>
      {f.full_at ? <>about <Day at={f.full_at} /></> : 'not within ten years'}
      {f.full_earliest_at && (
        <span className="muted">
          ; at the earliest <Day at={f.full_earliest_at} />
        </span>
      )}
    </>
  );
}

export const forecastFacts = (f: Forecast): readonly (readonly [string, ReactNode])[] => [
  ['Growth', growthText(f)],
  ['Full', <FullAt key="f" forecast={f} />],
];

export function ForecastCard({ cluster, forecast }: { cluster: Cluster; forecast: Forecast }) {
  const begins = Math.floor(Date.parse(cluster.seen_at) / 1000);
  const { times, series } = useMemo(() => {
    const lines = ahead(cluster, forecast, begins);
    return {
      times: lines.times,
      series: [
        { label: 'If it goes on like this', values: lines.likely },
        { label: 'With the largest growth', values: lines.most },
        { label: 'With the smallest growth', values: lines.least },
        { label: 'Full', values: lines.capacity, bad: true },
      ],
    };
  }, [cluster, forecast, begins]);
  return (
    <Card title="When it will be full">
      <div className="stack">
        <Facts facts={forecastFacts(forecast)} />
        {isKnown(forecast) && <Plot label={`Use of ${cluster.name} in the next ${aheadDays} days`} times={times} series={series} format={bytes} />}
        <p className="muted small">A straight line through the use of the last days, at most 30. In 95 of 100 cases, the growth is within the error. The figures above the plot are those in {aheadDays} days.</p>
      </div>
    </Card>
  );
}
