import { describe, expect, it } from 'vitest';
import { validate } from '../../ui/schema';
import { schemas } from '../api';
import { forwardsOf, forwardsText } from './forwards';

describe('forwardsOf', () => {
  it('reads ports, protocols and addresses of the host, and forwardsText writes them', () => {
    const forwards = forwardsOf(' 30080:80, 30053:53/udp\n0.0.0.0:30022:22/tcp');
    expect(forwards).toEqual([
      { protocol: 'tcp', host_address: '127.0.0.1', host_port: 30080, guest_port: 80 },
      { protocol: 'udp', host_address: '127.0.0.1', host_port: 30053, guest_port: 53 },
      { protocol: 'tcp', host_address: '0.0.0.0', host_port: 30022, guest_port: 22 },
    ]);
    expect(forwardsText(forwards)).toBe('30080:80, 30053:53/udp, 0.0.0.0:30022:22');
    expect(forwardsOf(forwardsText(forwards))).toEqual(forwards);
    expect(forwardsOf(' , ')).toEqual([]);
    expect(forwardsText(undefined)).toBe('');
  });

  it('reads what the contract takes', () => {
    expect(validate(schemas.CreateVM, { name: 'web', image: 'demo', network: { mode: 'user', forwards: forwardsOf('30080:80, 127.0.0.1:30053:53/udp') } })).toEqual([]);
  });

  it.each(['80', '0:80', '80:65536', 'a:80', '80:80/sctp', '::1:80:80', '80:', '1:2:3', '80-90:80'])('refuses %s by its name', (text) => {
    expect(() => forwardsOf(`30080:80, ${text}`)).toThrow(`“${text}” is not a port of the host and one of the guest`);
  });
});
