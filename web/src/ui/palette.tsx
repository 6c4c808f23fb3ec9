/**
 * The command palette (Ctrl-K): goes to a page, to another service, or to an object by its name. It
 * is a combobox of the ARIA pattern: the focus stays in the input, and arrows move the selection.
 */
import { useQuery } from '@tanstack/react-query';
import { useDeferredValue, useEffect, useEffectEvent, useId, useState, type KeyboardEvent } from 'react';
import { useLocation } from 'wouter';
import { Dialog } from './dialog';
import { Icon, type IconName } from './icon';
import { reason } from './problem';

/** Something to go to. */
export interface Found {
  label: string;
  /** A path of this console, or the address of another one. */
  href: string;
  /** How to go there, if it takes more than following the link. */
  run?: () => void;
  icon: IconName;
  /** What it is, as in “site”. */
  kind: string;
}

/** Finds objects on the server. */
export type Find = (text: string, signal: AbortSignal) => Promise<Found[]>;

/** Opens the palette with Ctrl-K, or with ⌘K, wherever the focus is. */
export function usePaletteKey(open: () => void): void {
  const press = useEffectEvent((event: globalThis.KeyboardEvent) => {
    if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  useEffect(() => {
    const listener = (event: globalThis.KeyboardEvent) => press(event);
    document.addEventListener('keydown', listener);
    return () => document.removeEventListener('keydown', listener);
  }, []);
}

/** The pages whose name contains every word. */
export function matching(places: readonly Found[], text: string): Found[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return places.filter((p) => words.every((w) => p.label.toLowerCase().includes(w)));
}

/** Objects are searched from this many characters on. */
const shortest = 2;

export function Palette({ places, find, onClose }: { /** The pages and services. */ places: readonly Found[]; find: Find | undefined; onClose: () => void }) {
  const list = useId();
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [, navigate] = useLocation();
  const wanted = useDeferredValue(text.trim());
  const searches = find !== undefined && wanted.length >= shortest;
  const objects = useQuery({
    queryKey: ['palette', wanted],
    queryFn: async ({ signal }) => {
      // Whoever types on ends this before it asks.
      await new Promise((next) => setTimeout(next, 120));
      signal.throwIfAborted();
      return find?.(wanted, signal) ?? [];
    },
    enabled: searches,
    staleTime: 5_000,
  });
  const found = [...matching(places, text), ...((searches && objects.data) || [])];
  const selected = Math.min(at, found.length - 1);
  const go = (to: Found | undefined) => {
    if (!to) return;
    onClose();
    if (to.run) to.run();
    else navigate(to.href);
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && found.length > 0) {
      event.preventDefault();
      setAt((selected + step + found.length) % found.length);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      go(found[selected]);
    }
  };
  return (
    <Dialog title="Go to" onClose={onClose}>
      <div className="palette">
        <div className="table-filter">
          <Icon name="search" />
          <input
            className="input"
            type="search"
            role="combobox"
            aria-label="Page, service or object"
            aria-expanded={found.length > 0}
            aria-controls={list}
            aria-activedescendant={found.length > 0 ? `${list}-${selected}` : undefined}
            autoComplete="off"
            // The dialog moves the focus to the element with this attribute, which React would leave out.
            ref={(input) => input?.setAttribute('autofocus', '')}
            placeholder="Name of a page, or of anything else"
            value={text}
            onChange={(e) => {
              setText(e.target.value);
              setAt(0);
            }}
            onKeyDown={keys}
          />
        </div>
        <div id={list} role="listbox" aria-label="Results" className="palette-list">
          {found.map((f, i) => (
            // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus -- the input has the keys and the focus
            <div key={`${f.kind} ${f.href}`} id={`${list}-${i}`} role="option" aria-selected={i === selected} className="menu-item" onClick={() => go(f)} onPointerMove={() => setAt(i)}>
              <Icon name={f.icon} />
              <span className="clip">{f.label}</span>
              <span className="muted small">{f.kind}</span>
            </div>
          ))}
        </div>
        <p className="muted small" role="status">
          {objects.error && searches ? reason(objects.error) : searches && objects.isFetching ? 'Searching…' : found.length === 0 ? 'Nothing is called so.' : ''}
        </p>
      </div>
    </Dialog>
  );
}
