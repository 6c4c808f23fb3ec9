/** Keyboard shortcuts: `?` lists them, `/` focuses the filter, `g` and a letter opens a page. */
import { useEffect, useEffectEvent } from 'react';
import { useLocation } from 'wouter';
import { Dialog } from './dialog';

export interface Jump {
  key: string;
  href: string;
  label: string;
}

/** The time after `g` in which the letter must follow. */
const chordMs = 1_200;

export function useShortcuts(jumps: readonly Jump[], showHelp: () => void): void {
  const [, navigate] = useLocation();
  const press = useEffectEvent((event: KeyboardEvent, chord: boolean): boolean => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, select, dialog[open]')) return false;
    if (chord) {
      const jump = jumps.find((j) => j.key === event.key);
      if (jump) navigate(jump.href);
      return false;
    }
    if (event.key === '?') showHelp();
    if (event.key === '/') {
      const filter = document.querySelector<HTMLElement>('[data-filter]');
      if (filter) {
        event.preventDefault();
        filter.focus();
      }
    }
    return event.key === 'g';
  });
  useEffect(() => {
    let chordUntil = 0;
    const listener = (event: KeyboardEvent) => {
      const began = press(event, event.timeStamp < chordUntil);
      chordUntil = began ? event.timeStamp + chordMs : 0;
    };
    document.addEventListener('keydown', listener);
    return () => document.removeEventListener('keydown', listener);
  }, []);
}

export function ShortcutsHelp({ jumps, onClose }: { jumps: readonly Jump[]; onClose: () => void }) {
  const keys: [keys: string[], what: string][] = [
    [['?'], 'Show this'],
    [['Ctrl K'], 'Go to a page, a service or an object'],
    [['/'], 'Go to the filter'],
    [['↓', '↑'], 'Next and previous row of a table'],
    [['Esc'], 'Close a dialog or a menu'],
    ...jumps.map((j): [string[], string] => [['g', j.key], `Go to ${j.label}`]),
  ];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <div className="dialog-body">
        <dl className="facts">
          {keys.map(([k, what]) => (
            <div key={what} style={{ display: 'contents' }}>
              <dt className="nowrap">
                {k.map((key, i) => (
                  <span key={key}>
                    {i > 0 && ' '}
                    <kbd>{key}</kbd>
                  </span>
                ))}
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Dialog>
  );
}
