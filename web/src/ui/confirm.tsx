/** Asks before something happens that cannot be taken back, and says exactly what will happen. */
import { createContext, use, useCallback, useMemo, useState, type ReactNode } from 'react';
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
  /** Does it; what it throws is shown in the dialog, which stays. */
  run: () => Promise<unknown>;
  /** Said when it is done. */
  done: string;
}

const ConfirmContext = createContext<((question: Question) => void) | null>(null);

/** Gives a function that asks a question. */
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
  const run = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await question.run();
      toast(question.done);
      onClose();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  return (
    <Dialog title={question.title} onClose={onClose} locked={busy}>
      <div className="dialog-body stack-tight">
        {question.body}
        {error !== undefined && <Failure error={error} />}
      </div>
      <div className="dialog-foot">
        <button type="button" className="btn" disabled={busy} onClick={onClose}>
          Cancel
        </button>
        <button type="button" className={`btn ${question.danger ? 'btn-danger' : 'btn-primary'}`} disabled={busy} onClick={() => void run()}>
          {busy ? 'Working…' : question.action}
        </button>
      </div>
    </Dialog>
  );
}
