/** What things are called, and where their pages are. */
import type { Backend, VIP } from './api';

export const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address);

/** The page of a VIP: /vips/ADDRESS/PORT/PROTOCOL. */
export function vipPath(name: string): string {
  const [, address = '', port, protocol] = /^(.*):([^:]*):([^:]*)$/.exec(name) ?? [];
  return `/vips/${address.replace(/^\[(.*)\]$/, '$1')}/${port}/${protocol}`;
}

/** The name of the VIP that a page is about. */
export const vipName = (p: { address: string; port: string; protocol: string }) => `${bracketed(p.address)}:${p.port}:${p.protocol}`;

/** A VIP as people say it, with all ports of a range. */
export const vipLabel = (v: Pick<VIP, 'vipAddress' | 'vipPort' | 'vipPortEnd'>) =>
  `${bracketed(v.vipAddress)}:${v.vipPort}${v.vipPortEnd ? `–${v.vipPortEnd}` : ''}`;

/** A backend as people say it; behind a range of ports it has none of its own. */
export const backendLabel = (b: Pick<Backend, 'address' | 'port'>) => (b.port ? `${bracketed(b.address)}:${b.port}` : `${b.address}, same port`);
