/**
 * Who is signed in to a console. The session itself is in a cookie that scripts cannot read, and
 * which all tabs share; this is what the page knows of it. A console has one Session. The API
 * client tells it when the server no longer accepts the cookie.
 *
 *     unknown -> out <-> in <-> over
 *
 * While a session is over, the page stays as it is, with what was typed into it, until somebody has
 * signed in.
 */
import { createContext, use, useSyncExternalStore } from 'react';
import { ApiError, errorFrom, unreachable } from './problem';

/** The service takes the cookie only from requests with this header, which foreign pages cannot send. */
export const consoleHeaders = { 'X-Mainstay-Console': 'console' } as const;

export interface Who {
  name: string;
  /** A short description of their permissions. */
  note: string;
  /** Their role and their tenant, where the service says them here. */
  access?: string;
  tenant?: string;
}

/** How one can sign in. */
export interface Accepts {
  password: boolean;
  /** What a token is called, such as “API key”. */
  token: string;
  token_hint: string;
  /** Where single sign-on begins. Empty: it is not accepted. */
  single_sign_on: string;
}

/** The server's description of the session. */
export interface Info {
  service: string;
  title: string;
  version: string;
  signed_in: boolean;
  over: boolean;
  who?: Who;
  /** Whether there is anything to sign out of: not if the service needs no credentials. */
  sign_out: boolean;
  expires_at?: string;
  accepts: Accepts;
}

/** `code` is that of a second factor. It is sent with the password once the service has asked for it. */
export type Credentials = { username: string; password: string; code?: string } | { token: string } | { ticket: string };

/** What came of a sign-in: the person is in, or the password was right and a code is needed. */
export type Outcome = 'in' | 'code';

export interface SessionState {
  phase: 'unknown' | 'out' | 'in' | 'over';
  /** Undefined until the server has answered. */
  info: Info | undefined;
  /** Why the server has not answered, or did not take what the address contained. */
  error: unknown;
  /** Counts how often somebody signed in, so that streams begin anew. */
  epoch: number;
}

export interface Session {
  state: () => SessionState;
  subscribe: (listener: () => void) => () => void;
  /** Asks the server. */
  load: () => Promise<void>;
  /** Says whether the person is in, or a code is needed. Throws the server's refusal. */
  signIn: (credentials: Credentials) => Promise<Outcome>;
  /** Throws if the server did not end the session. */
  signOut: () => Promise<void>;
  /** Called when the server does not accept the session. */
  expire: () => void;
}

/** A message of one tab to the others. */
type Message = 'in' | 'out';

const path = '/console/session';

async function send(method: string, body?: Credentials): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      cache: 'no-store',
      headers: { ...consoleHeaders, ...(body && { 'Content-Type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    });
  } catch {
    throw unreachable();
  }
  if (!response.ok) throw await errorFrom(response);
  return response;
}

export function createSession(service: string): Session {
  const listeners = new Set<() => void>();
  const tabs = typeof BroadcastChannel === 'undefined' ? undefined : new BroadcastChannel(`mainstay.${service}`);
  let state: SessionState = { phase: 'unknown', info: undefined, error: undefined, epoch: 0 };
  const change = (to: Partial<SessionState>) => {
    state = { ...state, ...to };
    for (const listener of listeners) listener();
  };
  const read = async (error?: unknown) => {
    const info = (await (await send('GET')).json()) as Info;
    // The page of a session that is over is still that person's.
    if (!info.who && state.info?.who && state.phase !== 'out') info.who = state.info.who;
    // What a person was doing stays on the page only if it was there.
    const out = state.phase === 'in' || state.phase === 'over' ? 'over' : 'out';
    const anew = info.signed_in && (state.phase !== 'in' || state.info?.who?.name !== info.who?.name);
    change({ info, error, phase: info.signed_in ? 'in' : out, epoch: anew ? state.epoch + 1 : state.epoch });
  };
  const load = async () => {
    change({ error: undefined });
    const given = takeFromFragment();
    let error: unknown;
    try {
      if (given?.credentials) await send('POST', given.credentials);
      error = given?.refused;
    } catch (e) {
      error = e;
    }
    try {
      await read(error);
    } catch (e) {
      change({ error: e });
    }
  };
  const signIn = async (credentials: Credentials): Promise<Outcome> => {
    const answer = await send('POST', credentials);
    // Without a step that is left, the answer is empty.
    if (answer.status === 200 && ((await answer.json()) as { needs?: string }).needs === 'code') return 'code';
    await read();
    tabs?.postMessage('in' satisfies Message);
    return 'in';
  };
  const signOut = async () => {
    await send('DELETE');
    change({ phase: 'out', error: undefined });
    tabs?.postMessage('out' satisfies Message);
  };
  tabs?.addEventListener('message', (event: MessageEvent<Message>) => {
    if (event.data === 'out') change({ phase: 'out', error: undefined });
    // Another person may have signed in there.
    else void read().catch(() => undefined);
  });
  return {
    state: () => state,
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    load,
    signIn,
    signOut,
    expire: () => {
      // A late answer to a request of before must not end the session of now, so the server is asked.
      if (state.phase === 'in') void read().catch(() => undefined);
    },
  };
}

export function useSession(session: Session): SessionState {
  return useSyncExternalStore(session.subscribe, session.state);
}

const SessionContext = createContext<Session | null>(null);
export const SessionProvider = SessionContext;

/** The session of this console. */
export function useOwnSession(): Session {
  const session = use(SessionContext);
  if (!session) throw new Error('useOwnSession needs a SessionProvider around it');
  return session;
}

/** What the fragment of the address brings: credentials, or why there are none. */
interface Brought {
  credentials?: Credentials;
  refused?: ApiError;
}

/**
 * Takes what single sign-on (`oidc_token`, `refused`) or another console (`ticket`) passes in the
 * fragment of the address, and removes it from there and from the history at once.
 */
export function takeFromFragment(win: Window = window): Brought | undefined {
  const fragment = new URLSearchParams(win.location.hash.slice(1));
  const [token, ticket, refused] = ['oidc_token', 'ticket', 'refused'].map((name) => fragment.get(name));
  if (!token && !ticket && !refused) return undefined;
  win.history.replaceState(null, '', win.location.pathname + win.location.search);
  if (token) return { credentials: { token } };
  if (ticket) return { credentials: { ticket } };
  return { refused: new ApiError(403, 'refused', refused ?? '') };
}
