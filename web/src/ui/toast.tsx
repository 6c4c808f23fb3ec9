/** Short messages about completed actions, which screen readers read out. */
import { useSyncExternalStore } from 'react';
import { Icon } from './icon';
import type { Tone } from './status';

interface Toast {
  id: number;
  text: string;
  tone: Tone;
}

const lastsMs = 6_000;
const most = 4;

let toasts: readonly Toast[] = [];
let nextId = 1;
const listeners = new Set<() => void>();

function change(next: readonly Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

export function toast(text: string, tone: Tone = 'ok'): void {
  const id = nextId++;
  change([...toasts, { id, text, tone }].slice(-most));
  setTimeout(() => dismiss(id), lastsMs);
}

function dismiss(id: number): void {
  change(toasts.filter((t) => t.id !== id));
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The container of toasts. A console has exactly one. */
export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((t) => (
        <div key={t.id} className={`toast tone-${t.tone}`}>
          <Icon name={t.tone === 'ok' ? 'check' : t.tone === 'info' ? 'info' : 'alert'} />
          <span>{t.text}</span>
          <button type="button" className="btn btn-quiet btn-small btn-icon" aria-label="Dismiss" onClick={() => dismiss(t.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
