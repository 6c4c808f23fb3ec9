/**
 * A modal dialog based on the native element: the rest of the page is inert, Escape closes the
 * dialog, and focus returns to where it was.
 */
import { useId, useLayoutEffect, useRef, type KeyboardEvent, type ReactNode } from 'react';
import { Icon } from './icon';

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  /** Prevents closing while an action is in progress. */
  locked?: boolean;
  /** The content is shown only once: only the dialog's own button closes it. */
  once?: boolean;
}

export function Dialog({ title, onClose, children, wide = false, locked = false, once = false }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const leaves = useRef(false);
  useLayoutEffect(() => {
    const dialog = ref.current;
    leaves.current = false;
    dialog?.showModal();
    // Closing the dialog before the element is removed restores focus.
    return () => {
      leaves.current = true;
      dialog?.close();
      restoreFocus();
    };
  }, []);
  const request = () => {
    if (!locked && !once) onClose();
  };
  // Browsers let a page prevent only one cancel event in a row: a second Escape would close the
  // dialog anyway.
  const keys = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || event.defaultPrevented) return;
    event.preventDefault();
    request();
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- Escape is the dialog's own key
    <dialog
      ref={ref}
      className={`dialog ${wide ? 'wide' : ''}`}
      aria-labelledby={heading}
      onKeyDown={keys}
      onCancel={(e) => {
        if (e.target !== ref.current) return;
        e.preventDefault();
        request();
      }}
      onClose={(e) => {
        // If the browser closed the dialog itself, as for a gesture, treat that as a request to
        // close.
        if (e.target !== ref.current || leaves.current || ref.current.open) return;
        ref.current.showModal();
        request();
      }}
    >
      <div className="dialog-head">
        <h2 id={heading}>{title}</h2>
        {!once && (
          <button type="button" className="btn btn-quiet btn-icon" aria-label="Close" disabled={locked} onClick={onClose}>
            <Icon name="close" />
          </button>
        )}
      </div>
      {children}
    </dialog>
  );
}

/** If what happened removed the element that had focus, the page's heading gets it. */
export function restoreFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>('h1')?.focus();
  });
}
