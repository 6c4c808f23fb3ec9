/** An action on many rows: what it will do, its progress, and what failed. */
import { useRef, useState, type ReactNode } from 'react';
import { Dialog } from './dialog';
import { Notice } from './notice';
import { count } from './number';
import { reason } from './problem';
import { Bar } from './progress';

interface Common<T> {
  /** The verb, as in “Stop”. */
  label: string;
  /** Whether the action makes sense for a row. The others are left out, and counted. */
  applies?: (row: T) => boolean;
  /** What happens to each of them. */
  body: ReactNode;
  danger?: boolean;
  /** Called when all of them were tried. */
  after: () => unknown;
}

/** Done to the rows one by one (run), or to all of them with one request (together). */
export type BulkAction<T> = Common<T> & ({ run: (row: T) => Promise<unknown>; together?: undefined } | { together: (rows: readonly T[]) => Promise<unknown> });

/** How many requests are made at once. */
const atOnce = 4;
const named = 5;

export interface Outcome<T> {
  done: number;
  failed: { row: T; why: string }[];
}

/** Runs an action on all rows with one request, which fails for all of them or none. */
async function runTogether<T>(rows: readonly T[], run: (rows: readonly T[]) => Promise<unknown>): Promise<Outcome<T>> {
  try {
    await run(rows);
    return { done: rows.length, failed: [] };
  } catch (e) {
    const why = reason(e);
    return { done: 0, failed: rows.map((row) => ({ row, why })) };
  }
}

/** Runs an action on all rows, a few at a time, until the signal. A failure does not end it. */
export async function runAll<T>(rows: readonly T[], run: (row: T) => Promise<unknown>, signal: AbortSignal, onProgress: (outcome: Outcome<T>) => void): Promise<Outcome<T>> {
  const outcome: Outcome<T> = { done: 0, failed: [] };
  const waiting = [...rows];
  const worker = async () => {
    for (let row = waiting.shift(); row !== undefined && !signal.aborted; row = waiting.shift()) {
      try {
        await run(row);
        outcome.done++;
      } catch (e) {
        outcome.failed.push({ row, why: reason(e) });
      }
      onProgress({ ...outcome });
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, rows.length) }, worker));
  return outcome;
}

interface Props<T> {
  action: BulkAction<T>;
  rows: readonly T[];
  /** What a number of rows is called, as in “3 sites”. */
  counted: (n: number) => string;
  name: (row: T) => string;
  onClose: () => void;
}

export function BulkDialog<T>({ action, rows, counted, name, onClose }: Props<T>) {
  const [chosen, setChosen] = useState<readonly T[]>(() => rows.filter((r) => action.applies?.(r) ?? true));
  const [outcome, setOutcome] = useState<Outcome<T>>();
  const [busy, setBusy] = useState(false);
  const abort = useRef<AbortController | null>(null);
  const left = rows.length - chosen.length;
  const start = async (which: readonly T[]) => {
    abort.current = new AbortController();
    setChosen(which);
    setOutcome({ done: 0, failed: [] });
    setBusy(true);
    const ended = action.together ? await runTogether(which, action.together) : await runAll(which, action.run, abort.current.signal, setOutcome);
    setOutcome(ended);
    setBusy(false);
    action.after();
  };
  const tried = outcome ? outcome.done + outcome.failed.length : 0;
  return (
    <Dialog title={`${action.label} ${counted(chosen.length)}${outcome ? '' : '?'}`} onClose={onClose} locked={busy}>
      <div className="dialog-body stack-tight">
        {!outcome && (
          <>
            <div>{action.body}</div>
            <p>{listed(chosen.map(name))}</p>
            {left > 0 && <p className="muted">Left out: {counted(left)}, to which this does not apply.</p>}
          </>
        )}
        {outcome && (
          <div className="stack-tight" role="status">
            <Bar
              parts={[
                { label: 'done', value: outcome.done, tone: 'ok' },
                { label: 'failed', value: outcome.failed.length, tone: 'bad' },
              ]}
              total={chosen.length}
            />
            <span>
              {count(outcome.done)} of {counted(chosen.length)} done
              {outcome.failed.length > 0 && `, ${count(outcome.failed.length)} failed`}
              {!busy && tried < chosen.length && `, ${count(chosen.length - tried)} not tried`}
            </span>
          </div>
        )}
        {outcome && outcome.failed.length > 0 && (
          <Notice tone="bad">
            <ul className="plain">
              {outcome.failed.slice(0, 50).map((f) => (
                <li key={name(f.row)}>
                  <b>{name(f.row)}</b>: {f.why}
                </li>
              ))}
              {outcome.failed.length > 50 && <li>and {count(outcome.failed.length - 50)} more</li>}
            </ul>
          </Notice>
        )}
      </div>
      <div className="dialog-foot">
        {busy ? (
          <button type="button" className="btn" onClick={() => abort.current?.abort()}>
            Stop after those under way
          </button>
        ) : (
          <button type="button" className="btn" onClick={onClose}>
            {outcome ? 'Close' : 'Cancel'}
          </button>
        )}
        {!outcome && (
          <button type="button" className={`btn ${action.danger ? 'btn-danger' : 'btn-primary'}`} disabled={chosen.length === 0} onClick={() => void start(chosen)}>
            {action.label} {counted(chosen.length)}
          </button>
        )}
        {outcome && !busy && outcome.failed.length > 0 && (
          <button type="button" className="btn btn-primary" onClick={() => void start(outcome.failed.map((f) => f.row))}>
            Try the failed again
          </button>
        )}
      </div>
    </Dialog>
  );
}

/** “a, b, c and 4 more” */
function listed(names: readonly string[]): string {
  if (names.length <= named) return names.join(', ');
  return `${names.slice(0, named).join(', ')} and ${count(names.length - named)} more`;
}
