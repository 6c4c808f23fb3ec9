/**
 * The known status of a deployment. The last status from its agent is valid only while its site is
 * online.
 */
import type { Deployment } from '../api';

type Said = Pick<Deployment, 'status' | 'site_status' | 'site_last_seen_at'>;

export interface Known {
  status: Deployment['status'] | 'unknown';
  /** If the status is unknown: the agent's last status, and when the site was last seen. */
  last?: { status: Deployment['status']; at: string | null };
}

/**
 * Statuses that may have changed since. Failures, and statuses that the agent has not received yet,
 * stay.
 */
const mayChange: readonly Deployment['status'][] = ['running', 'stopped', 'pulling'];

export const siteIsSilent = (d: Pick<Deployment, 'site_status'>) => d.site_status !== undefined && d.site_status !== 'online';

export function known(d: Said): Known {
  if (!siteIsSilent(d) || !mayChange.includes(d.status)) return { status: d.status };
  return { status: 'unknown', last: { status: d.status, at: d.site_last_seen_at ?? null } };
}
