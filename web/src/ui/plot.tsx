/**
 * A plot over time. Above the canvas are the last values, or those below the pointer. The same data is
 * in a table, for people who cannot see the plot.
 */
import { useEffect, useMemo, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { short } from './number';
import { colour, useDark } from './theme';
import { Clock } from './time';

export interface Series {
  label: string;
  /** One value per time; null if there is none. */
  values: readonly (number | null)[];
  /** Drawn in red, for unwanted events. */
  bad?: boolean;
}

/** The design tokens of the series, in order. */
const tokens = ['--series-1', '--series-2', '--series-3'];
const badToken = '--series-4';

const tokenOf = (s: Series, i: number) => (s.bad ? badToken : (tokens[i % tokens.length] ?? ''));

/** The value at an index, negative ones from the end. Unknown values are not zero. */
function valueOf(s: Series, at: number, unit: string): string {
  const value = s.values.at(at) ?? null;
  return value === null ? 'not known' : `${short(value)}${unit}`;
}

/**
 * The minimum width of the time axis in seconds, so that a plot that has just started does not move
 * too fast.
 */
const shortestSeconds = 60;

export function Plot({ label, times, series, unit = '', height = 150 }: { label: string; /** Unix seconds, ascending. */ times: readonly number[]; series: readonly Series[]; unit?: string; height?: number }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useDark();
  // The index of the time below the pointer.
  const [hovered, setHovered] = useState<number>();
  // Labels and colours. Changing them requires a new plot.
  const lines = JSON.stringify(series.map((s, i) => [s.label, tokenOf(s, i)]));
  const data = useMemo(() => [[...times], ...series.map((s) => [...s.values])] as uPlot.AlignedData, [times, series]);
  const latest = useRef(data);

  useEffect(() => {
    latest.current = data;
    plot.current?.setData(data);
  }, [data]);

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
        scales: { x: { range: (_, from, to) => [Math.min(from, to - shortestSeconds), to] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.15)] } },
        axes: [
          { ...axis, space: 70, size: 26, values: (_, splits) => splits.map((s) => new Date(s * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', second: s % 60 ? '2-digit' : undefined })) },
          { ...axis, size: 46 + 6 * unit.length, space: 28, values: (_, splits) => splits.map((s) => `${short(s)}${unit}`) },
        ],
        series: [
          {},
          ...(JSON.parse(lines) as [label: string, token: string][]).map(([label, token]) => ({ label, stroke: colour(token, element), width: 1.75, points: { show: false } })),
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
  }, [lines, height, dark, unit]);

  const last = series.map((s) => `${s.label} ${valueOf(s, -1, unit)}`).join(', ');
  const rows = times.map((t, i) => ({ t, values: series.map((s) => s.values[i]) })).slice(-60).reverse();
  return (
    <figure aria-label={label}>
      <ul className="plot-legend">
        {series.map((s, i) => (
          <li key={s.label}>
            <span className="plot-swatch" style={{ background: `var(${tokenOf(s, i)})` }} />
            {s.label} <b>{valueOf(s, hovered ?? -1, unit)}</b>
          </li>
        ))}
        {hovered !== undefined && times[hovered] !== undefined && (
          <li className="muted">
            at <Clock at={new Date(times[hovered] * 1000).toISOString()} />
          </li>
        )}
      </ul>
      <div ref={box} className="plot-canvas" role="img" aria-label={`${label}. Last: ${last}`} style={{ height }} />
      <details className="plot-data">
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
                    <Clock at={new Date(r.t * 1000).toISOString()} />
                  </td>
                  {r.values.map((v, i) => (
                    <td key={i} className="end">
                      {v === null || v === undefined ? '' : short(v)}
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
