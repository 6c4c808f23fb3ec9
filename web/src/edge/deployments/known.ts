/** What is known of a deployment: what its agent said last holds only while its site is heard of. */
import type { Deployment } from '../api';

type Said = Pick<Deployment, 'status' | 'site_status' | 'site_last_seen_at'>;

export interface Known {
  status: Deployment['status'] | 'unknown';
  /** What the agent said last, and when it was heard of, of what is not known any more. */
  last?: { status: Deployment['status']; at: string | null };
}

/** What may have changed since the agent said it. What failed, and what it has yet to hear of, stays. */
const mayChange: readonly Deployment['status'][] = ['running', 'stopped', 'pulling'];

export const siteIsSilent = (d: Pick<Deployment, 'site_status'>) => d.site_status !== undefined && d.site_status !== 'online';

export function known(d: Said): Known {
  if (!siteIsSilent(d) || !mayChange.includes(d.status)) return { status: d.status };
  return { status: 'unknown', last: { status: d.status, at: d.site_last_seen_at ?? null } };
}
