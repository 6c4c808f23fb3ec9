/** Asks for confirmation before an irreversible action, and describes its exact effect. */
import { createContext, use, useCallback, useId, useMemo, useState, type ReactNode, type SyntheticEvent } from 'react';
import { Dialog } from './dialog';
import { Failure } from './notice';
import { toast } from './toast';

export interface Question {
  title: string;
  /** What will happen, with names and numbers. */
  body: ReactNode;
  /** The verb on the button. */
  action: string;
  danger?: boolean;
  /** A name that the user must type first, for things that would be missed. */
  typed?: string;
  /** Performs the action. If it throws, the dialog stays open and shows the error. */
  run: () => Promise<unknown>;
  /** The message after success, which may depend on what `run` found. */
  done: string | (() => string);
}

const ConfirmContext = createContext<((question: Question) => void) | null>(null);

/** Returns a function that asks a question. */
export function useConfirm(): (question: Question) => void {
  const ask = use(ConfirmContext);
  if (!ask) throw new Error('useConfirm needs a ConfirmProvider around it');
  return ask;
}

export function ConfirmProvider({ children }: { children: ReactNode }) {
  const [question, setQuestion] = useState<Question | null>(null);
  const close = useCallback(() => setQuestion(null), []);
  const shown = useMemo(() => question && <Confirm question={question} onClose={close} />, [question, close]);
  return (
    <ConfirmContext value={setQuestion}>
      {children}
      {shown}
    </ConfirmContext>
  );
}

function Confirm({ question, onClose }: { question: Question; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [typed, setTyped] = useState('');
  const field = useId();
  const ready = question.typed === undefined || typed.trim() === question.typed;
  const run = async (event: SyntheticEvent) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setError(undefined);
    try {
      await question.run();
      toast(typeof question.done === 'string' ? question.done : question.done());
      onClose();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  return (
    <Dialog title={question.title} onClose={onClose} locked={busy}>
      <form className="dialog-form" noValidate onSubmit={(e) => void run(e)}>
        <div className="dialog-body stack-tight">
          {question.body}
          {question.typed !== undefined && (
            <div className="field">
              <label htmlFor={field}>
                Type <b>{question.typed}</b> to continue
              </label>
              <input id={field} className="input mono" autoComplete="off" autoCapitalize="none" spellCheck={false} value={typed} onChange={(e) => setTyped(e.target.value)} />
            </div>
          )}
          {error !== undefined && <Failure error={error} />}
        </div>
        <div className="dialog-foot">
          <button type="button" className="btn" disabled={busy} onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className={`btn ${question.danger ? 'btn-danger' : 'btn-primary'}`} disabled={busy || !ready}>
            {busy ? 'Working…' : question.action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
