import { describe, expect, it } from 'vitest';
import { ApiError } from '../../ui/problem';
import { documentText, ofRule, peerText, trafficText } from './rules';

describe('rules in words', () => {
  it('say whom they are about, and which traffic', () => {
    expect(peerText({ cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] })).toBe('10.0.0.0/8 but for 10.1.0.0/16');
    expect(peerText({ group: 'db' })).toBe('the group db');
    expect(peerText({})).toBe('everybody');
    expect(trafficText({ protocol: 'tcp', ports: [{ port: 22 }, { port: 80, end_port: 90 }] })).toBe('tcp 22, 80-90');
    expect(trafficText({ protocol: 'icmp', icmp_type: 8 })).toBe('icmp type 8');
    expect(trafficText({})).toBe('all protocols');
  });

  it('tell a rule that matches nobody now from one that matches everybody', () => {
    expect(documentText({ name: 'a', action: 'allow' })).toEqual({ peers: 'everybody', ports: 'all protocols' });
    expect(documentText({ name: 'a', action: 'allow', peers: [] }).peers).toBe('nobody now');
    expect(documentText({ name: 'a', action: 'deny', peers: [{ fqdn: 'example.com' }], ports: [{ protocol: 'udp', port: 53 }] })).toEqual({ peers: 'example.com', ports: 'udp 53' });
  });
});

describe('ofRule', () => {
  it.each(['ingress.rules[0].cidr: is not a network', 'egress.rules.12.cidr: is not a network', 'rules[3].cidr: is not a network'])('finds the field in “%s”', (message) => {
    expect(ofRule(new ApiError(400, 'invalid', message))).toMatchObject({ field: 'cidr', message: 'cidr: is not a network' });
  });
  it('leaves other errors alone', () => {
    for (const e of [new ApiError(409, '', 'no'), new ApiError(400, '', 'groups[0]: there is none'), new Error('x')]) expect(ofRule(e)).toBe(e);
  });
});
