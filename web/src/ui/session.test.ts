import { beforeEach, describe, expect, it, vi } from 'vitest';
import { createSession, inMemory, takeTokenFromFragment } from './session';

describe('session', () => {
  beforeEach(() => sessionStorage.clear());

  it('tells its listeners, and survives a reload', () => {
    const session = createSession('edge');
    const listener = vi.fn();
    const stop = session.subscribe(listener);
    session.set('a');
    expect(createSession('edge').token()).toBe('a');
    expect(createSession('other').token()).toBeNull();
    session.signOut();
    stop();
    session.set('b');
    expect(listener).toHaveBeenCalledTimes(2);
  });

  it('leaves no trace of a token that is kept in memory', () => {
    const session = createSession('lb', inMemory());
    session.set('a');
    expect(session.token()).toBe('a');
    expect([sessionStorage.length, localStorage.length]).toEqual([0, 0]);
    session.signOut();
    expect([session.token(), createSession('lb', inMemory()).token()]).toEqual([null, null]);
  });

  it('knows whether it ended by itself', () => {
    const session = createSession('edge');
    session.set('a');
    session.expire('a');
    expect([session.token(), session.expired()]).toEqual([null, true]);
    session.set('b');
    session.signOut();
    expect(session.expired()).toBe(false);
  });

  it('is not ended by the late answer to a token of before', () => {
    const session = createSession('edge');
    session.set('new');
    session.expire('old');
    expect(session.token()).toBe('new');
  });

  it('takes the token from the fragment, once, and clears the address', () => {
    history.replaceState(null, '', '/sites?x=1#oidc_token=s3cret');
    const session = createSession('edge');
    takeTokenFromFragment(session);
    expect(session.token()).toBe('s3cret');
    expect(location.pathname + location.search + location.hash).toBe('/sites?x=1');
  });

  it('leaves other fragments alone', () => {
    history.replaceState(null, '', '/sites#devices');
    takeTokenFromFragment(createSession('edge'));
    expect(location.hash).toBe('#devices');
  });
});
