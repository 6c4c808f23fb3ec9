import { describe, expect, it } from 'vitest';
import { ApiError } from '../problem';
import { passing, socketURL, waitMs } from './socket';

describe('sockets', () => {
  it('are opened where the page came from, encrypted if it was', () => {
    expect(socketURL('/v1/vms/a%2Fb/console', 'mtk_1+2', { protocol: 'http:', host: 'localhost:7070' })).toBe('ws://localhost:7070/v1/vms/a%2Fb/console?ticket=mtk_1%2B2');
    expect(socketURL('/api/vms/a/screen?tenant=x', 't', { protocol: 'https:', host: 'h' })).toBe('wss://h/api/vms/a/screen?tenant=x&ticket=t');
    expect(socketURL('/v1/vms/a/console', 't', { protocol: 'https:', host: 'h' }, { log: 'l&', offset: 7 })).toBe('wss://h/v1/vms/a/console?ticket=t&offset=7&log=l%26');
  });

  it('are opened again soon at first, and never less often than every ten seconds', () => {
    expect([0, 1, 2, 3, 4, 5, 50].map(waitMs)).toEqual([500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
  });

  it('are not tried again when that would not help', () => {
    const status = (n: number) => passing(new ApiError(n, '', ''));
    expect([0, 429, 503].map(status)).toEqual([true, true, true]);
    expect([401, 403, 404, 409].map(status)).toEqual([false, false, false, false]);
  });
});
