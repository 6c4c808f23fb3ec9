/** Finds VMs and images on the server, for the command palette. */
import { body } from '../ui/client';
import type { Found } from '../ui/palette';
import { api } from './api';

/** How many of each kind are offered. */
const most = 8;

export async function find(q: string, signal: AbortSignal): Promise<Found[]> {
  const searched = { params: { query: { q, limit: most } }, signal };
  const [vms, images] = await Promise.all([body(api.GET('/v1/vms', searched)), body(api.GET('/v1/images/catalog', searched))]);
  return [
    ...vms.map((v): Found => ({ label: v.name, href: `/vms/${v.id}`, icon: 'node', kind: `VM, ${v.state}` })),
    ...images.map((i): Found => ({ label: i.name, href: `/images?filter=${encodeURIComponent(i.name)}`, icon: 'deployment', kind: 'image' })),
  ];
}
