/** Asks before what was typed is thrown away. */
import { useState, type ReactNode } from 'react';
import { Dialog } from './dialog';

/**
 * What a dialog with a form uses in place of its `onClose`: `close` closes at once
 * while nothing was typed, and asks otherwise. `question` is to be put on the page,
 * beside the dialog.
 */
export function useDiscard(typed: boolean, onClose: () => void): { close: () => void; question: ReactNode } {
  const [asking, setAsking] = useState(false);
  const stay = () => setAsking(false);
  return {
    close: () => (typed ? setAsking(true) : onClose()),
    question: asking && (
      <Dialog title="Throw away what you typed?" onClose={stay}>
        <div className="dialog-body">
          <p>Nothing of it is saved.</p>
        </div>
        <div className="dialog-foot">
          <button type="button" className="btn" onClick={stay}>
            Go on typing
          </button>
          <button type="button" className="btn btn-danger" onClick={onClose}>
            Throw it away
          </button>
        </div>
      </Dialog>
    ),
  };
}
