/**
 * The client for a service's API. Every failure, including network errors, is thrown as an ApiError
 * with a message for people. A 401 ends the session.
 */
import createFetchClient, { type Client, type Middleware } from 'openapi-fetch';
import { nextCursor, type Page } from './paging';
import { errorFrom, unreachable } from './problem';
import { consoleHeaders, type Session } from './session';

export function createClient<Paths extends object>(session: Session, baseUrl = '/api/v1'): Client<Paths> {
  const client = createFetchClient<Paths>({ baseUrl: new URL(baseUrl, location.origin).href });
  const middleware: Middleware = {
    onRequest({ request }) {
      for (const [name, value] of Object.entries(consoleHeaders)) request.headers.set(name, value);
    },
    async onResponse({ response }) {
      if (response.ok) return;
      if (response.status === 401) session.expire();
      throw await errorFrom(response);
    },
    onError({ error }) {
      // Handles only errors of fetch itself. Cancelled requests stay AbortErrors.
      return error instanceof DOMException && error.name === 'AbortError' ? error : unreachable();
    },
  };
  client.use(middleware);
  return client;
}

/** The body of a successful response. */
export async function body<T>(call: Promise<{ data?: T }>): Promise<T> {
  return (await call).data as T;
}

/** A page of a list: its items, and the cursor of the next page. */
export async function page<T>(call: Promise<{ data?: T[]; response: Response }>): Promise<Page<T>> {
  const { data, response } = await call;
  return { items: data ?? [], next: nextCursor(response.headers.get('Link')) };
}
