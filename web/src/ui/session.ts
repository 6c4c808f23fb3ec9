/**
 * The token of whoever is signed in. It lives in sessionStorage, where it survives
 * a reload and is gone with the tab, or in memory, where a reload ends it too. A
 * console has one session; the API client ends it when the server no longer
 * accepts the token.
 */
import { useSyncExternalStore } from 'react';

export interface Session {
  token: () => string | null;
  set: (token: string) => void;
  /** Forgets the token, because its owner signs out. */
  signOut: () => void;
  /** Forgets a token that the server no longer accepts, unless another one has taken its place since. */
  expire: (token: string) => void;
  /** Whether the last session ended by itself. */
  expired: () => boolean;
  subscribe: (listener: () => void) => () => void;
}

/** Where a session keeps its token. */
export type TokenStore = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/** Keeps a token nowhere but in this page's memory. */
export function inMemory(): TokenStore {
  const kept = new Map<string, string>();
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => void kept.set(key, value),
    removeItem: (key) => void kept.delete(key),
  };
}

export function createSession(service: string, storage: TokenStore = sessionStorage): Session {
  const key = `mainstay.${service}.token`;
  const listeners = new Set<() => void>();
  let expired = false;
  const change = (token: string | null, byItself: boolean) => {
    expired = byItself;
    if (token === null) storage.removeItem(key);
    else storage.setItem(key, token);
    for (const listener of listeners) listener();
  };
  return {
    token: () => storage.getItem(key),
    set: (token) => change(token, false),
    signOut: () => change(null, false),
    expire: (token) => {
      if (storage.getItem(key) === token) change(null, true);
    },
    expired: () => expired,
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useToken(session: Session): string | null {
  return useSyncExternalStore(session.subscribe, session.token);
}

/**
 * Takes the session token that single sign-on leaves in the fragment, and
 * removes it from the address bar and from the history at once.
 */
export function takeTokenFromFragment(session: Session, win: Window = window): void {
  const fragment = new URLSearchParams(win.location.hash.slice(1));
  const token = fragment.get('oidc_token');
  if (!token) return;
  win.history.replaceState(null, '', win.location.pathname + win.location.search);
  session.set(token);
}
