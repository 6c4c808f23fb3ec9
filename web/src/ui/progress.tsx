/** Progress: bars with one or several parts, what is used of limits, and stages. */
import type { ReactNode } from 'react';
import { percent } from './number';
import { Status, type Tone } from './status';

export interface Part {
  label: string;
  value: number;
  tone: Tone;
}

/** A bar with a part for each tone. Screen readers read the numbers. */
export function Bar({ parts, total }: { parts: readonly Part[]; total: number }) {
  const said = parts.filter((p) => p.value > 0).map((p) => `${p.value} ${p.label}`);
  return (
    <div className="bar" role="img" aria-label={`${said.join(', ') || 'none'} of ${total}`}>
      {total > 0 && parts.map((p) => p.value > 0 && <span key={p.label} className={`tone-${p.tone}`} style={{ width: `${(100 * p.value) / total}%` }} />)}
    </div>
  );
}

/** How far something is, with the number beside it. */
export function Meter({ progress, failed = false }: { /** From 0 to 1. */ progress: number; failed?: boolean }) {
  return (
    <span className="meter">
      <Bar parts={[{ label: 'percent done', value: Math.round(progress * 100), tone: failed ? 'bad' : 'ok' }]} total={100} />
      <span className="muted small">{percent(progress)}</span>
    </span>
  );
}

/** A limit, and how much of it is used. */
export interface Limit {
  label: string;
  /** Without one, there is no limit, and no bar. */
  limit: number | undefined;
  value: number;
  text: (n: number) => string;
}

/** What is used of limits. */
export function Limits({ of }: { of: readonly Limit[] }) {
  return (
    <div className="stack">
      {of.map(({ label, limit, value, text }) => (
        <div key={label} className="stack-tight">
          <div className="row spread small">
            <span>{label}</span>
            <span className="muted">{limit === undefined ? `${text(value)}, no limit` : `${text(value)} of ${text(limit)}${value > limit ? ', more than allowed' : ''}`}</span>
          </div>
          {limit !== undefined && <Bar parts={[{ label: `percent of ${label.toLowerCase()} used`, value: limit === 0 ? (value ? 100 : 0) : Math.min(100, Math.round((100 * value) / limit)), tone: value > limit ? 'bad' : value > limit * 0.9 ? 'warn' : 'info' }]} total={100} />}
        </div>
      ))}
    </div>
  );
}

export interface Stage {
  title: string;
  state: string;
  tone: Tone;
  detail: ReactNode;
  current: boolean;
}

export function Stages({ label, stages }: { label: string; stages: readonly Stage[] }) {
  return (
    <ol className="stages" aria-label={label}>
      {stages.map((s) => (
        <li key={s.title} className={`stage tone-${s.tone} stack-tight`} aria-current={s.current ? 'step' : undefined}>
          <span className="row spread">
            <b>{s.title}</b>
            <Status tone={s.tone}>{s.state}</Status>
          </span>
          <span className="muted">{s.detail}</span>
        </li>
      ))}
    </ol>
  );
}
