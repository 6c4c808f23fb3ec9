/**
 * A modal dialog on the native element: the rest of the page is inert, Escape
 * closes, and focus returns to where it was.
 */
import { useId, useLayoutEffect, useRef, type KeyboardEvent, type ReactNode } from 'react';
import { Icon } from './icon';

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  /** Not to be closed while something is under way. */
  locked?: boolean;
  /** It shows what is shown only once: nothing but its own button closes it. */
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
    // Closing before the element goes away is what gives focus back.
    return () => {
      leaves.current = true;
      dialog?.close();
      restoreFocus();
    };
  }, []);
  const request = () => {
    if (!locked && !once) onClose();
  };
  // Browsers let a page refuse a cancel event only once: a second Escape would close it all the same.
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
        // What the browser closed by itself, as for a gesture, is asked for like anything else.
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

/** What had focus may be gone with what the dialog did; then the page's heading takes it. */
function restoreFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>('h1')?.focus();
  });
}
