/** Finds objects of the fleet by name or ID, for the command palette. */
import { body } from '../ui/client';
import type { Found } from '../ui/palette';
import { api } from './api';
import { devicePath } from './links';

/** How many of each kind are offered. */
const most = 6;

export async function find(q: string, signal: AbortSignal): Promise<Found[]> {
  const searched = { params: { query: { q, limit: most } }, signal };
  const [sites, devices, routes, deployments, campaigns] = await Promise.all([
    body(api.GET('/sites', searched)),
    body(api.GET('/devices', searched)),
    body(api.GET('/routes', searched)),
    body(api.GET('/deployments', searched)),
    body(api.GET('/ota/campaigns', searched)),
  ]);
  return [
    ...sites.map((s): Found => ({ label: s.name, href: `/sites/${encodeURIComponent(s.id)}`, icon: 'site', kind: 'site' })),
    ...devices.map((d): Found => ({ label: d.name ? `${d.device_id} (${d.name})` : d.device_id, href: devicePath(d.device_id), icon: 'device', kind: 'device' })),
    ...routes.map((r): Found => ({ label: r.name, href: `/routes/${encodeURIComponent(r.id)}`, icon: 'route', kind: 'route' })),
    ...deployments.map((d): Found => ({ label: d.name, href: `/deployments/${encodeURIComponent(d.id)}`, icon: 'deployment', kind: 'deployment' })),
    ...campaigns.map((c): Found => ({ label: c.name, href: `/campaigns/${encodeURIComponent(c.id)}`, icon: 'campaign', kind: 'campaign' })),
  ];
}
