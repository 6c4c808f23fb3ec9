import { describe, expect, it } from 'vitest';
import type { Backend, VIP } from './api';
import { commands, isOrchestratorDrained, remainingIf, shareWith } from './change';

const backend = (id: number, state: Backend['state'] = 'healthy', weight = 1) => ({ id, state, weight }) as Backend;
const vip = (name: string, ...backends: Backend[]): Pick<VIP, 'name' | 'backends'> => ({ name, backends });

describe('the commands that change a backend', () => {
  const server = 'https://node-3:9870';
  it('name it by address and port, and the server that this console is of', () => {
    expect(commands({ address: '10.0.0.12', port: 8080 }, '10', server)).toEqual({
      drain: 'mainstay lb backend drain 10.0.0.12:8080 --server https://node-3:9870',
      undrain: 'mainstay lb backend undrain 10.0.0.12:8080 --server https://node-3:9870',
      weight: 'mainstay lb backend weight 10.0.0.12:8080 10 --server https://node-3:9870',
    });
  });
  it('quote what a shell would take for something else', () => {
    const of = commands({ address: '2001:db8::2', port: 0 }, '5', server, '[2001:db8::1]:80:tcp');
    expect(of.drain).toBe("mainstay lb backend drain '[2001:db8::2]:0' --server https://node-3:9870");
    expect(of.weight).toBe("mainstay lb backend weight '[2001:db8::2]:0' 5 --vip '[2001:db8::1]:80:tcp' --server https://node-3:9870");
  });
});

describe('what would remain', () => {
  it('is counted in backends and in weight, those that are down or draining left out', () => {
    expect(remainingIf([vip('a', backend(1), backend(2), backend(3), backend(4))], 1, false)).toEqual([{ vip: 'a', takers: 3, total: 4, share: 0.75 }]);
    expect(remainingIf([vip('a', backend(1, 'healthy', 2), backend(2, 'down'), backend(3))], 1, false)).toEqual([{ vip: 'a', takers: 1, total: 3, share: 0.25 }]);
    expect(remainingIf([vip('a', backend(1, 'draining'), backend(2))], 1, true)).toEqual([{ vip: 'a', takers: 2, total: 2, share: 1 }]);
  });
  it('is told of every VIP that the backend serves, also when nothing does', () => {
    const all = remainingIf([vip('a', backend(1), backend(2)), vip('b', backend(1)), vip('c', backend(2))], 1, false);
    expect(all).toEqual([{ vip: 'a', takers: 1, total: 2, share: 0.5 }, { vip: 'b', takers: 0, total: 1, share: 0 }]);
  });
  it('with another weight is a share of those that take new connections', () => {
    const of = vip('a', backend(1), backend(2), backend(3, 'down', 50));
    expect(shareWith(of, 1, 1)).toBe(0.5);
    expect(shareWith(of, 1, 3)).toBe(0.75);
    expect(shareWith(of, 3, 3)).toBeUndefined();
  });
});

describe('a drain of an orchestrator', () => {
  const node = { orchestratorDrains: [{ source: 'kubernetes', backends: ['10.0.0.1:80', '10.0.0.2:0'] }] };
  it.each([
    ['10.0.0.1', 80, true],
    ['10.0.0.1', 81, false],
    ['10.0.0.2', 81, true],
  ])('of %s:%d is known: %s', (address, port, is) => expect(isOrchestratorDrained({ address, port }, node)).toBe(is));
});
