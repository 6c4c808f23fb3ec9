import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createClient, page } from './client';
import { ApiError } from './problem';
import type { Session } from './session';

interface Paths {
  '/sites': { get: { responses: { 200: { content: { 'application/json': { id: string }[] } } } } };
}

const expire = vi.fn();
const session = { expire } as unknown as Session;
const answer = (status: number, body: string, headers: Record<string, string> = {}) => vi.spyOn(globalThis, 'fetch').mockResolvedValue(new Response(body, { status, headers: { 'Content-Type': 'application/json', ...headers } }));

describe('the client', () => {
  beforeEach(() => expire.mockClear());
  afterEach(() => vi.restoreAllMocks());

  it('sends the console’s header, and gives a page with its cursor', async () => {
    const fetch = answer(200, '[{"id":"a"}]', { Link: '</api/v1/sites?cursor=b>; rel="next"' });
    await expect(page(createClient<Paths>(session).GET('/sites'))).resolves.toEqual({ items: [{ id: 'a' }], next: 'b' });
    expect((fetch.mock.calls[0]?.[0] as Request).headers.get('X-Mainstay-Console')).toBe('console');
  });

  it('throws what the service says, with field and request id', async () => {
    answer(400, '{"error":{"code":"invalid","message":"name: too long","field":"name","request_id":"r1"}}');
    const error = await createClient<Paths>(session).GET('/sites').catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 400, code: 'invalid', message: 'name: too long', field: 'name', requestId: 'r1' });
    expect(expire).not.toHaveBeenCalled();
  });

  it('reads a body whose error is the sentence, with the limit that it names', async () => {
    answer(400, '{"error":"too many vcpus","code":"policy_limit","limit":"policy.max_vcpus","request_id":"r1"}');
    const error = await createClient<Paths>(session).GET('/sites').catch((e: unknown) => e);
    expect(error).toMatchObject({ status: 400, code: 'policy_limit', message: 'too many vcpus', limit: 'policy.max_vcpus', requestId: 'r1' });
  });

  it.each([
    ['{"error":"no such site"}', 'no such site'],
    ['{"detail":"no such site"}', 'no such site'],
    ['{"success":false,"data":null,"error":"no such site"}', 'no such site'],
    ['{"detail":[{"loc":["body"]}]}', 'The server answered 404.'],
    ['{"error":null}', 'The server answered 404.'],
    ['null', 'The server answered 404.'],
  ])('reads the sentence of %s', async (text, message) => {
    answer(404, text, { 'X-Request-Id': 'r3' });
    await expect(createClient<Paths>(session).GET('/sites')).rejects.toMatchObject({ status: 404, message, requestId: 'r3' });
  });

  it('takes the request id of the header where the body has none', async () => {
    answer(502, '<html>Bad gateway</html>', { 'X-Request-Id': 'r2' });
    await expect(createClient<Paths>(session).GET('/sites')).rejects.toMatchObject({ status: 502, requestId: 'r2' });
  });

  it('ends the session on 401', async () => {
    answer(401, '{"error":{"code":"unauthenticated","message":"no","request_id":"r"}}');
    await expect(createClient<Paths>(session).GET('/sites')).rejects.toThrow('no');
    expect(expire).toHaveBeenCalledOnce();
  });

  it('makes a sentence of an answer that is not the service’s', async () => {
    answer(502, '<html>Bad gateway</html>');
    await expect(createClient<Paths>(session).GET('/sites')).rejects.toThrow('The server answered 502');
  });

  it('says that the server cannot be reached', async () => {
    vi.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('Failed to fetch'));
    await expect(createClient<Paths>(session).GET('/sites')).rejects.toMatchObject({ status: 0, code: 'unreachable' });
  });
});
