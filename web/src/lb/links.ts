/** Names of VIPs and backends, and the paths of their pages. */
import type { Backend, VIP } from './api';

export const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address);

/** The page of a VIP: /vips/ADDRESS/PORT/PROTOCOL. */
export function vipPath(name: string): string {
  const [, address = '', port, protocol] = /^(.*):([^:]*):([^:]*)$/.exec(name) ?? [];
  return `/vips/${address.replace(/^\[(.*)\]$/, '$1')}/${port}/${protocol}`;
}

/** The name of the VIP that a page shows. */
export const vipName = (p: { address: string; port: string; protocol: string }) => `${bracketed(p.address)}:${p.port}:${p.protocol}`;

/** A VIP for display, with all ports of a range. */
export const vipLabel = (v: Pick<VIP, 'vipAddress' | 'vipPort' | 'vipPortEnd'>) =>
  `${bracketed(v.vipAddress)}:${v.vipPort}${v.vipPortEnd ? `–${v.vipPortEnd}` : ''}`;

/** A backend for display. Behind a range of ports it has no port of its own. */
export const backendLabel = (b: Pick<Backend, 'address' | 'port'>) => (b.port ? `${bracketed(b.address)}:${b.port}` : `${b.address}, same port`);
