/** Rules of network policies: what they say in words, and which field of a rule an error is about. */
import { ApiError } from '../../ui/problem';
import type { DocumentRule, VMRule } from '../api';
import { portsText } from './ports';

const entities: Record<string, string> = { all: 'everybody', world: 'the world outside', host: 'the hosts', cluster: 'the VMs of the tenant' };

/** Whom a rule is about. */
export function peerText(r: Pick<VMRule, 'cidr' | 'except' | 'group' | 'entity'>): string {
  if (r.cidr) return r.cidr + (r.except?.length ? ` but for ${r.except.join(', ')}` : '');
  if (r.group) return `the group ${r.group}`;
  return entities[r.entity ?? 'all'] ?? r.entity ?? '';
}

/** Which traffic a rule is about, as in “tcp 22, 80”. */
export function trafficText(r: Pick<VMRule, 'protocol' | 'ports' | 'icmp_type' | 'icmp_code'>): string {
  const ports = portsText(r.ports);
  const type = r.icmp_type === undefined ? '' : `type ${r.icmp_type}${r.icmp_code === undefined ? '' : `, code ${r.icmp_code}`}`;
  return [r.protocol && r.protocol !== 'any' ? r.protocol : 'all protocols', ports || type].filter(Boolean).join(' ');
}

/** A rule of an effective policy in words. */
export function documentText(r: DocumentRule): { peers: string; ports: string } {
  return {
    peers: r.peers ? r.peers.map((p) => p.fqdn ?? peerText(p)).join(', ') || 'nobody now' : 'everybody',
    ports: r.ports ? r.ports.map((p) => trafficText({ protocol: p.protocol, ...(p.port !== undefined && { ports: [{ port: p.port, ...(p.end_port !== undefined && { end_port: p.end_port }) }] }), ...(p.icmp_type !== undefined && { icmp_type: p.icmp_type }), ...(p.icmp_code !== undefined && { icmp_code: p.icmp_code }) })).join(', ') : 'all protocols',
  };
}

/**
 * The error of a whole policy as that of one of its rules: “ingress.rules[0].cidr: …” is about the
 * field `cidr`. The form then shows it there.
 */
export function ofRule(error: unknown): unknown {
  if (!(error instanceof ApiError)) return error;
  const match = /^(?:(?:ingress|egress)\.)?rules(?:\[\d+\]|\.\d+)\.([\w.[\]]+): (.*)$/s.exec(error.message);
  return match ? new ApiError(error.status, error.code, `${match[1]}: ${match[2]}`, match[1], error.requestId) : error;
}
