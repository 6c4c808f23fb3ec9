/**
 * A button that opens a list of actions. It is shown in the top layer, so that tables do not clip
 * it.
 */
import { useId, useRef, type KeyboardEvent, type ReactNode } from 'react';

export interface MenuAction {
  label: string;
  run: () => void;
  danger?: boolean;
}

/** Places a popover below its button, with aligned right edges. */
function placeUnder(popover: HTMLElement, button: HTMLElement): void {
  const at = button.getBoundingClientRect();
  popover.style.right = `${document.documentElement.clientWidth - at.right}px`;
  popover.style.top = `${at.bottom + 4}px`;
}

/** Moves a popover, whose size is now known, into the window. */
function pullInside(popover: HTMLElement, button: HTMLElement): void {
  const { left, bottom, height } = popover.getBoundingClientRect();
  if (left < 8) popover.style.right = `${Number.parseFloat(popover.style.right) + left - 8}px`;
  if (bottom + 8 > innerHeight) popover.style.top = `${Math.max(8, button.getBoundingClientRect().top - height - 4)}px`;
}

/** A button with a popover. `children` renders its content, and `close` hides it. */
export function Popover({ label, button, className = '', role, children }: { label: string; button: ReactNode; className?: string; role?: 'menu' | 'group'; children: (close: () => void) => ReactNode }) {
  const id = useId();
  const opener = useRef<HTMLButtonElement>(null);
  const popover = useRef<HTMLDivElement>(null);
  const close = () => document.getElementById(id)?.hidePopover();

  const keys = (event: KeyboardEvent) => {
    const items = [...(popover.current?.querySelectorAll<HTMLElement>('button:not(:disabled), input, a') ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      items[(at + step + items.length) % items.length]?.focus();
    } else if (event.key === 'Home' || event.key === 'End') {
      event.preventDefault();
      items.at(event.key === 'Home' ? 0 : -1)?.focus();
    }
  };

  return (
    <>
      <button ref={opener} type="button" className={`btn ${className}`} aria-label={label} title={label} aria-haspopup={role === 'menu' ? 'menu' : 'true'} popoverTarget={id} onClick={(e) => e.stopPropagation()}>
        {button}
      </button>
      {/* Clicks inside must not reach the row that the button stands in. */}
      {/* eslint-disable-next-line jsx-a11y/no-static-element-interactions -- only stops what came from its items */}
      <div
        ref={popover}
        id={id}
        popover="auto"
        role={role ?? 'group'}
        aria-label={label}
        className="menu"
        onKeyDown={keys}
        onClick={(e) => e.stopPropagation()}
        onBeforeToggle={(event) => {
          if (event.newState !== 'open' || !popover.current || !opener.current) return;
          placeUnder(popover.current, opener.current);
          // The browser focuses this element when it opens the popover, before it handles the next
          // key.
          popover.current.querySelector('button, input, a')?.setAttribute('autofocus', '');
        }}
        onToggle={(event) => {
          if (event.newState === 'open' && popover.current && opener.current) pullInside(popover.current, opener.current);
        }}
      >
        {children(close)}
      </div>
    </>
  );
}

export function Menu({ label, button, actions, className }: { label: string; button: ReactNode; actions: readonly MenuAction[]; className?: string }) {
  if (actions.length === 0) return null;
  return (
    <Popover label={label} button={button} role="menu" className={className ?? 'btn-quiet btn-icon btn-small'}>
      {(close) =>
        actions.map((action) => (
          <button
            key={action.label}
            type="button"
            role="menuitem"
            className={`menu-item ${action.danger ? 'bad' : ''}`}
            onClick={() => {
              close();
              action.run();
            }}
          >
            {action.label}
          </button>
        ))
      }
    </Popover>
  );
}
