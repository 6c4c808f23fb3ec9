/**
 * A modal dialog on the native element: the rest of the page is inert, Escape
 * closes, and focus returns to where it was.
 */
import { useId, useLayoutEffect, useRef, type ReactNode } from 'react';
import { Icon } from './icon';

export function Dialog({ title, onClose, children, wide = false, locked = false }: { title: string; onClose: () => void; children: ReactNode; wide?: boolean; /** Not to be closed while something is under way. */ locked?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    // Closing before the element goes away is what gives focus back.
    return () => {
      dialog?.close();
      restoreFocus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      className={`dialog ${wide ? 'wide' : ''}`}
      aria-labelledby={heading}
      onCancel={(e) => {
        e.preventDefault();
        if (!locked) onClose();
      }}
    >
      <div className="dialog-head">
        <h2 id={heading}>{title}</h2>
        <button type="button" className="btn btn-quiet btn-icon" aria-label="Close" disabled={locked} onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {children}
    </dialog>
  );
}

/** What had focus may be gone with what the dialog did; then the page's heading takes it. */
function restoreFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>('h1')?.focus();
  });
}
