/** Finds objects of the fleet by name or ID, for the command palette. */
import { body } from '../ui/client';
import type { Found } from '../ui/palette';
import { api, pageLimit } from './api';
import { devicePath } from './links';

/** How many of each kind are offered. */
const most = 6;

/** Lists that the API does not search are short. */
function within<T>(rows: readonly T[], text: string, name: (row: T) => string): T[] {
  const wanted = text.toLowerCase();
  return rows.filter((r) => name(r).toLowerCase().includes(wanted)).slice(0, most);
}

export async function find(q: string, signal: AbortSignal): Promise<Found[]> {
  const searched = { params: { query: { q, limit: most } }, signal };
  const whole = { params: { query: { limit: pageLimit } }, signal };
  const [sites, devices, routes, deployments, campaigns] = await Promise.all([
    body(api.GET('/sites', searched)),
    body(api.GET('/devices', searched)),
    body(api.GET('/routes', whole)),
    body(api.GET('/deployments', whole)),
    body(api.GET('/ota/campaigns', whole)),
  ]);
  return [
    ...sites.map((s): Found => ({ label: s.name, href: `/sites/${encodeURIComponent(s.id)}`, icon: 'site', kind: 'site' })),
    ...devices.map((d): Found => ({ label: d.name ? `${d.device_id} (${d.name})` : d.device_id, href: devicePath(d.device_id), icon: 'device', kind: 'device' })),
    ...within(routes, q, (r) => r.name).map((r): Found => ({ label: r.name, href: `/routes/${encodeURIComponent(r.id)}`, icon: 'route', kind: 'route' })),
    ...within(deployments, q, (d) => `${d.name} ${d.image}`).map((d): Found => ({ label: d.name, href: `/deployments/${encodeURIComponent(d.id)}`, icon: 'deployment', kind: 'deployment' })),
    ...within(campaigns, q, (c) => `${c.name} ${c.version}`).map((c): Found => ({ label: c.name, href: `/campaigns/${encodeURIComponent(c.id)}`, icon: 'campaign', kind: 'campaign' })),
  ];
}
