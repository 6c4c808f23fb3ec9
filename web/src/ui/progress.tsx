/** Progress: a bar with one or several parts, and stages. */
import type { ReactNode } from 'react';
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
