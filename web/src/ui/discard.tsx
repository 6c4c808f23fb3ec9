/** Asks before discarding input. */
import { useState, type ReactNode } from 'react';
import { Dialog } from './dialog';

/**
 * Replaces the `onClose` of a dialog with a form. `close` closes it at once if nothing was typed,
 * and asks otherwise. Render `question` next to the dialog.
 */
export function useDiscard(typed: boolean, onClose: () => void): { close: () => void; question: ReactNode } {
  const [asking, setAsking] = useState(false);
  const stay = () => setAsking(false);
  return {
    close: () => (typed ? setAsking(true) : onClose()),
    question: asking && (
      <Dialog title="Discard what you typed?" onClose={stay}>
        <div className="dialog-body">
          <p>Nothing of it is saved.</p>
        </div>
        <div className="dialog-foot">
          <button type="button" className="btn" onClick={stay}>
            Keep editing
          </button>
          <button type="button" className="btn btn-danger" onClick={onClose}>
            Discard it
          </button>
        </div>
      </Dialog>
    ),
  };
}
