/**
 * A plot over time. Above the canvas are the last values, or those below the pointer. The same data is
 * in a table, for people who cannot see the plot.
 */
import { useEffect, useMemo, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { axisTime } from './history';
import { short } from './number';
import { colour, useDark } from './theme';
import { Clock, DateTime } from './time';

export interface Series {
  label: string;
  /** One value per time; null if there is none. */
  values: readonly (number | null)[];
  /** Drawn in red, for unwanted events. The second such series of a plot is dashed. */
  bad?: boolean;
}

/** The design tokens of the series, in order. */
const tokens = ['--series-1', '--series-2', '--series-3'];
const badToken = '--series-4';

const tokenOf = (s: Series, i: number) => (s.bad ? badToken : (tokens[i % tokens.length] ?? ''));
const isDashed = (s: Series, i: number, all: readonly Series[]) => !!s.bad && all.findIndex((other) => other.bad) < i;

/** The value at an index, negative ones from the end. Unknown values are not zero. */
function valueOf(s: Series, at: number, format: (value: number) => string): string {
  const value = s.values.at(at) ?? null;
  return value === null ? 'not known' : format(value);
}

/** Known values between unknown ones. No line leads to them, so they are drawn as points. */
function alone(values: readonly (number | null | undefined)[]): number[] {
  const known = (i: number) => (values[i] ?? null) !== null;
  return values.flatMap((_, i) => (known(i) && !known(i - 1) && !known(i + 1) ? [i] : []));
}

/**
 * The minimum width of the time axis in seconds, so that a plot that has just started does not move
 * too fast.
 */
const shortestSeconds = 60;

/** Times of longer plots are shown with their date. */
const datedSeconds = 12 * 3600;

/** Steps of the time axis, in seconds. Those of the library have none between one and five minutes. */
const timeSteps = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 5_184_000];

/** The width of an axis for the longest of its labels, in pixels. Most are equal, so that plots align. */
const axisWidth = (labels: readonly string[] | null) => 16 + 6.5 * Math.max(8, ...(labels ?? []).map((l) => l.length));

export function Plot({
  label,
  times,
  from,
  to,
  series,
  unit = '',
  format,
  height = 150,
}: {
  label: string;
  /** Unix seconds, ascending. */
  times: readonly number[];
  /** What the time axis shows, in Unix seconds. Without them, it is the times. */
  from?: number | undefined;
  to?: number | undefined;
  series: readonly Series[];
  unit?: string | undefined;
  /** Formats values with their unit, instead of `unit`. */
  format?: ((value: number) => string) | undefined;
  height?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useDark();
  // The index of the time below the pointer.
  const [hovered, setHovered] = useState<number>();
  const [open, setOpen] = useState(false);
  const say = useMemo(() => format ?? ((value: number) => `${short(value)}${unit}`), [format, unit]);
  // Labels and colours. Changing them requires a new plot.
  const lines = JSON.stringify(series.map((s, i) => [s.label, tokenOf(s, i), isDashed(s, i, series)]));
  const data = useMemo(() => [[...times], ...series.map((s) => [...s.values])] as uPlot.AlignedData, [times, series]);
  const latest = useRef(data);
  const shown = useRef<[number | undefined, number | undefined]>([from, to]);

  useEffect(() => {
    latest.current = data;
    shown.current = [from, to];
    plot.current?.setData(data);
  }, [data, from, to]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const grid = { stroke: colour('--border', element), width: 1 };
    const axis = { stroke: colour('--muted', element), font: '11px system-ui, sans-serif', grid, ticks: { show: false } };
    const drawn = new uPlot(
      {
        width: element.clientWidth,
        height,
        legend: { show: false },
        // All plots of a page show the same moment.
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: 'time', scales: ['x', null] } },
        hooks: { setCursor: [(u) => setHovered(u.cursor.idx ?? undefined)] },
        scales: {
          x: {
            range: (_, first, last) => {
              const [from = first, to = last] = shown.current;
              return [Math.min(from, to - shortestSeconds), to];
            },
          },
          y: { range: (_, __, max) => [0, max > 0 ? max * 1.15 : 1] },
        },
        axes: [
          { ...axis, space: 55, size: 26, incrs: timeSteps, values: (_, splits) => splits.map(axisTime) },
          { ...axis, size: (_, values) => axisWidth(values), space: 28, values: (_, splits) => splits.map(say) },
        ],
        series: [
          {},
          ...(JSON.parse(lines) as [label: string, token: string, dashed: boolean][]).map(
            ([label, token, dashed]): uPlot.Series => ({
              label,
              stroke: colour(token, element),
              width: 1.75,
              ...(dashed && { dash: [5, 4] }),
              points: { size: 4, fill: colour(token, element), filter: (u, i) => alone(u.data[i] as (number | null)[]) },
            }),
          ),
        ],
      },
      latest.current,
      element,
    );
    plot.current = drawn;
    const resize = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      drawn.destroy();
      plot.current = null;
    };
    // The colours depend on the theme.
  }, [lines, height, dark, say]);

  const last = series.map((s) => `${s.label} ${valueOf(s, -1, say)}`).join(', ');
  const rows = open ? times.map((t, i) => ({ t, values: series.map((s) => s.values[i]) })).reverse() : [];
  const When = (times.at(-1) ?? 0) - (times[0] ?? 0) > datedSeconds ? DateTime : Clock;
  return (
    <figure aria-label={label}>
      <ul className="plot-legend">
        {series.map((s, i) => (
          <li key={s.label}>
            <span className={`plot-swatch ${isDashed(s, i, series) ? 'plot-dashed' : ''}`} style={{ color: `var(${tokenOf(s, i)})` }} />
            {s.label} <b>{valueOf(s, hovered ?? -1, say)}</b>
          </li>
        ))}
        {hovered !== undefined && times[hovered] !== undefined && (
          <li className="muted">
            at <When at={new Date(times[hovered] * 1000).toISOString()} />
          </li>
        )}
      </ul>
      <div ref={box} className="plot-canvas" role="img" aria-label={`${label}. Last: ${last}`} style={{ height }} />
      <details className="plot-data" onToggle={(e) => setOpen(e.currentTarget.open)}>
        <summary>Show as a table</summary>
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard */}
        <div tabIndex={0} role="region" aria-label={`${label}, as a table`}>
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Time</th>
                {series.map((s) => (
                  <th key={s.label} scope="col" className="end">
                    {s.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((r) => (
                <tr key={r.t}>
                  <td>
                    <When at={new Date(r.t * 1000).toISOString()} />
                  </td>
                  {r.values.map((v, i) => (
                    <td key={i} className="end">
                      {v === null || v === undefined ? '' : (format ?? short)(v)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}
