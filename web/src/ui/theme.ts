/** Light, dark, or the system's theme. The choice is stored in this browser. */
import { useSyncExternalStore } from 'react';

export type Theme = 'system' | 'light' | 'dark';

const key = 'mainstay.theme';
const listeners = new Set<() => void>();

export function theme(): Theme {
  const stored = localStorage.getItem(key);
  return stored === 'light' || stored === 'dark' ? stored : 'system';
}

/** Applies the stored theme to the document. Call it before the first paint. */
export function applyTheme(): void {
  const chosen = theme();
  if (chosen === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = chosen;
}

export function setTheme(next: Theme): void {
  if (next === 'system') localStorage.removeItem(key);
  else localStorage.setItem(key, next);
  applyTheme();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  listeners.add(listener);
  system.addEventListener('change', listener);
  return () => {
    listeners.delete(listener);
    system.removeEventListener('change', listener);
  };
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, theme);
}

/** Whether the page is dark. Content of canvases must be redrawn when it changes. */
export function useDark(): boolean {
  return useSyncExternalStore(subscribe, () => {
    const chosen = theme();
    return chosen === 'system' ? matchMedia('(prefers-color-scheme: dark)').matches : chosen === 'dark';
  });
}

/** The current colour of a design token, since canvases do not support custom properties. */
export function colour(token: string, at: HTMLElement): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${token})`;
  at.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
