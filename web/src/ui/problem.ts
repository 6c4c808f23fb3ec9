/** Errors of a service, and what they look like on the wire. */
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

/** Makes a form show a refusal at the field that it is about, where the service does not name it. */
export async function atField<T>(call: Promise<T>, fieldOf: (error: unknown) => string | undefined): Promise<T> {
  try {
    return await call;
  } catch (error) {
    const field = fieldOf(error);
    throw error instanceof ApiError && field ? new ApiError(error.status, error.code, error.message, field, error.requestId, error.limit) : error;
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
