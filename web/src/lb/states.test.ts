import { describe, expect, it } from 'vitest';
import type { Backend, VIP } from './api';
import { backendLabel, vipLabel, vipName, vipPath } from './links';
import { backendState, nodeState, tally, tallyText, vipTone, worstFirst } from './states';

const backends = (...states: Backend['state'][]) => states.map((state) => ({ state }));

describe('states', () => {
  it.each([
    ['healthy', false, 'healthy'],
    ['draining', false, 'draining (orchestrator)'],
    ['draining', true, 'draining (operator)'],
    ['down', true, 'down'], // a failed probe wins over a drain
  ] as const)('%s, drained by an operator %s, is “%s”', (state, adminDraining, text) => expect(backendState({ state, adminDraining })).toBe(text));

  it.each([
    [backends(), 'bad', 'no backends'],
    [backends('healthy', 'healthy'), 'ok', '2 of 2 healthy'],
    [backends('healthy', 'draining', 'down', 'down'), 'warn', '1 of 4 healthy (1 draining, 2 down)'],
    [backends('draining'), 'bad', '0 of 1 healthy (1 draining)'],
  ] as const)('backends %j of a VIP are %s: %s', (of, tone, text) => {
    expect(vipTone(tally(of))).toBe(tone);
    expect(tallyText(tally(of))).toBe(text);
  });

  const vips = (...of: Backend['state'][][]) => of.map((states) => ({ backends: backends(...states) }));
  it.each([
    [true, '', vips(['down'], ['healthy', 'down']), 'ok', 'balancing'],
    [true, '', vips(['down'], ['draining']), 'bad', 'no healthy backends'],
    [false, '', [], 'idle', 'no VIPs'],
    [false, 'no interface', vips(['healthy']), 'bad', 'not balancing'],
    [true, 'maps cannot be read', vips(['healthy']), 'bad', 'not ready'],
  ] as const)('a node, attached %j, not ready because of “%s”, with %j, is %s: %s', (attached, notReady, of, tone, text) => expect(nodeState({ attached, notReady }, of)).toEqual({ tone, text }));

  it('puts VIPs in trouble first and leaves the others in their order', () => {
    const named = (name: string, ...states: Backend['state'][]) => ({ name, backends: backends(...states) }) as VIP;
    const order = worstFirst([named('a', 'healthy'), named('b', 'healthy', 'down'), named('c', 'healthy'), named('d', 'down'), named('e')]);
    expect(order.map((v) => v.name)).toEqual(['d', 'e', 'b', 'a', 'c']);
  });
});

describe('labels', () => {
  it('has all ports of a range, and brackets around IPv6', () => {
    expect(vipLabel({ vipAddress: '192.0.2.1', vipPort: 80 })).toBe('192.0.2.1:80');
    expect(vipLabel({ vipAddress: '2001:db8::1', vipPort: 8000, vipPortEnd: 8100 })).toBe('[2001:db8::1]:8000–8100');
    expect(backendLabel({ address: '2001:db8::2', port: 0 })).toBe('2001:db8::2, same port');
    expect(backendLabel({ address: '10.0.0.1', port: 8080 })).toBe('10.0.0.1:8080');
  });

  it.each(['192.0.2.1:80:tcp', '[2001:db8::1]:53:udp'])('finds the VIP %s again in the address of its page', (name) => {
    const [, , address = '', port = '', protocol = ''] = vipPath(name).split('/');
    expect(vipName({ address, port, protocol })).toBe(name);
  });
});
