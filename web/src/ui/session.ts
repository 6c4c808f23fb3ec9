/**
 * The token of the signed-in user. It is stored in sessionStorage, where it survives a reload but
 * not the closing of the tab, or in memory, where it does not survive a reload either. A console
 * has one session. The API client ends it when the server no longer accepts the token.
 */
import { useSyncExternalStore } from 'react';

export interface Session {
  token: () => string | null;
  set: (token: string) => void;
  /** Deletes the token because the user signs out. */
  signOut: () => void;
  /** Deletes a token that the server no longer accepts, unless another one has replaced it. */
  expire: (token: string) => void;
  /** Whether the last session expired. */
  expired: () => boolean;
  subscribe: (listener: () => void) => () => void;
}

/** The storage for a session's token. */
export type TokenStore = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/** Stores a token only in this page's memory. */
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
 * Takes the session token that single sign-on passes in the fragment, and removes it from the
 * address bar and the history at once.
 */
export function takeTokenFromFragment(session: Session, win: Window = window): void {
  const fragment = new URLSearchParams(win.location.hash.slice(1));
  const token = fragment.get('oidc_token');
  if (!token) return;
  win.history.replaceState(null, '', win.location.pathname + win.location.search);
  session.set(token);
}
