/**
 * The client for a service's API. Every failure, including network errors, is thrown as an ApiError
 * with a message for people. A 401 ends the session.
 */
import createFetchClient, { type Client, type Middleware } from 'openapi-fetch';
import { nextCursor, type Page } from './paging';
import type { Session } from './session';

export class ApiError extends Error {
  constructor(
    /** HTTP status, or 0 if there was no response. */
    readonly status: number,
    readonly code: string,
    message: string,
    /** The invalid part of the input, as in `targets.labels`. */
    readonly field?: string,
    readonly requestId?: string,
    /** The limit of the service's policy that the request would exceed. */
    readonly limit?: string,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** Describes an error in one sentence. */
export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

interface ErrorParts {
  code?: string;
  message?: string;
  field?: string;
  limit?: string;
  request_id?: string;
}

/**
 * The parts of an error's body, for all services: `{error: {code, message, …}}`,
 * `{error: message, code, …}`, `{error: message}`, `{detail: message}`,
 * `{success: false, data: null, error: message}`.
 */
function partsOf(body: unknown): ErrorParts | undefined {
  if (typeof body !== 'object' || body === null) return undefined;
  const { error, detail, ...beside } = body as { error?: unknown; detail?: unknown } & ErrorParts;
  const parts = typeof error === 'object' && error !== null ? (error as ErrorParts) : { ...beside, message: (error ?? detail) as string };
  return typeof parts.message === 'string' && parts.message !== '' ? parts : undefined;
}

/** Converts the response to a failed request. */
export async function errorFrom(response: Response): Promise<ApiError> {
  const text = await response.text();
  const id = response.headers.get('X-Request-Id') ?? undefined;
  let parts: ErrorParts | undefined;
  try {
    parts = partsOf(JSON.parse(text));
  } catch {
    // A proxy between the browser and the service may answer in another format.
  }
  if (!parts) return new ApiError(response.status, 'unexpected', `The server answered ${response.status} ${response.statusText}`.trim() + '.', undefined, id);
  return new ApiError(response.status, parts.code ?? '', parts.message ?? '', parts.field, parts.request_id ?? id, parts.limit);
}

export const unreachable = () => new ApiError(0, 'unreachable', 'The server cannot be reached. Check the network and that the service is running.');

export function createClient<Paths extends object>(session: Session, baseUrl = '/api/v1'): Client<Paths> {
  const client = createFetchClient<Paths>({ baseUrl: new URL(baseUrl, location.origin).href });
  const bearer: Middleware = {
    onRequest({ request }) {
      const token = session.token();
      if (token) request.headers.set('Authorization', `Bearer ${token}`);
    },
    async onResponse({ request, response }) {
      if (response.ok) return;
      const used = request.headers.get('Authorization')?.slice('Bearer '.length);
      if (response.status === 401 && used) session.expire(used);
      throw await errorFrom(response);
    },
    onError({ error }) {
      // Handles only errors of fetch itself. Cancelled requests stay AbortErrors.
      return error instanceof DOMException && error.name === 'AbortError' ? error : unreachable();
    },
  };
  client.use(bearer);
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
