import { afterEach, describe, expect, it, vi } from 'vitest';
import { createSession, takeFromFragment, type Info } from './session';

/** A server with one account, whose session the browser keeps in a cookie. */
function server(first: Partial<Info> = {}) {
  let info: Info = { service: 'edge', title: 'Edge', version: '1', signed_in: false, over: false, sign_out: false, accepts: { password: true, token: 'Token', token_hint: '', single_sign_on: '' }, ...first };
  const requests: string[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation((_, init) => {
    const { method = 'GET', body, headers } = init ?? {};
    requests.push(`${method} ${typeof body === 'string' ? body : ''}`.trim());
    if (new Headers(headers).get('X-Mainstay-Console') === null) return Promise.resolve(new Response('{"error":"foreign"}', { status: 403 }));
    if (method === 'GET') return Promise.resolve(new Response(JSON.stringify(info)));
    if (method === 'DELETE') {
      const { who: _, ...rest } = info;
      info = { ...rest, signed_in: false };
      return Promise.resolve(new Response(null, { status: 204 }));
    }
    const name = /"(?:token|ticket)":"good-(.*)"/.exec(typeof body === 'string' ? body : '')?.[1];
    if (name === undefined) return Promise.resolve(new Response('{"error":{"message":"that is wrong"}}', { status: 401 }));
    info = { ...info, signed_in: true, over: false, who: { name, note: '' } };
    return Promise.resolve(new Response(null, { status: 204 }));
  });
  return {
    requests,
    end: () => {
      const { who: _, ...rest } = info;
      info = { ...rest, signed_in: false, over: true };
    },
  };
}

describe('a session', () => {
  afterEach(() => vi.restoreAllMocks());

  it('is what the server says it is, in every tab', async () => {
    server();
    const [one, other] = [createSession('one'), createSession('one')];
    await Promise.all([one.load(), other.load()]);
    expect(one.state().phase).toBe('out');
    await one.signIn({ token: 'good-ann' });
    expect(one.state()).toMatchObject({ phase: 'in', epoch: 1, info: { who: { name: 'ann' } } });
    await vi.waitFor(() => expect(other.state().phase).toBe('in'));
    await other.signOut();
    expect(other.state().phase).toBe('out');
    await vi.waitFor(() => expect(one.state().phase).toBe('out'));
  });

  it('does not begin with credentials that the server refuses', async () => {
    server();
    const session = createSession('two');
    await session.load();
    await expect(session.signIn({ token: 'bad' })).rejects.toThrow('that is wrong');
    expect(session.state().phase).toBe('out');
  });

  it('that is over keeps its person, and goes on with the next sign-in', async () => {
    const at = server();
    const session = createSession('three');
    await session.load();
    await session.signIn({ token: 'good-ann' });
    at.end();
    session.expire();
    await vi.waitFor(() => expect(session.state().phase).toBe('over'));
    expect(session.state().info?.who?.name).toBe('ann');
    await session.signIn({ token: 'good-ann' });
    expect(session.state()).toMatchObject({ phase: 'in', epoch: 2 });
  });

  it('is not ended by the late answer to a request of before', async () => {
    const at = server();
    const session = createSession('four');
    await session.load();
    await session.signIn({ token: 'good-ann' });
    session.expire();
    await vi.waitFor(() => expect(at.requests.at(-1)).toBe('GET'));
    expect(session.state()).toMatchObject({ phase: 'in', epoch: 1 });
  });

  it.each([
    ['#oidc_token=good-ann', 'POST {"token":"good-ann"}'],
    ['#ticket=good-ann', 'POST {"ticket":"good-ann"}'],
  ])('takes %s from the address, once, and clears it', async (hash, request) => {
    const at = server();
    history.replaceState(null, '', `/sites?x=1${hash}`);
    const session = createSession('five');
    await session.load();
    expect(session.state().phase).toBe('in');
    expect(at.requests).toEqual([request, 'GET']);
    expect(location.pathname + location.search + location.hash).toBe('/sites?x=1');
  });

  it('says why the address brought nothing', async () => {
    server();
    for (const [hash, error] of [['#ticket=old', 'that is wrong'], ['#refused=no%20group', 'no group']] as const) {
      history.replaceState(null, '', `/${hash}`);
      const session = createSession('six');
      await session.load();
      expect(session.state()).toMatchObject({ phase: 'out', error: { message: error } });
      expect(location.hash).toBe('');
    }
  });

  it('waits for a server that does not answer', async () => {
    vi.spyOn(globalThis, 'fetch').mockRejectedValueOnce(new TypeError('network'));
    const session = createSession('seven');
    await session.load();
    expect(session.state()).toMatchObject({ phase: 'unknown', error: { code: 'unreachable' } });
    server();
    await session.load();
    expect(session.state()).toMatchObject({ phase: 'out', error: undefined });
  });
});

describe('takeFromFragment', () => {
  it('leaves other fragments alone', () => {
    history.replaceState(null, '', '/sites#devices');
    expect(takeFromFragment()).toBeUndefined();
    expect(location.hash).toBe('#devices');
  });
});
