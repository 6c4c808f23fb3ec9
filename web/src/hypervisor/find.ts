/** Finds VMs and images by name or ID, for the command palette. */
import { body } from '../ui/client';
import type { Found } from '../ui/palette';
import { api, pageLimit } from './api';

/** How many of each kind are offered. */
const most = 8;

export async function find(text: string, signal: AbortSignal): Promise<Found[]> {
  const whole = { params: { query: { limit: pageLimit } }, signal };
  const [vms, images] = await Promise.all([body(api.GET('/v1/vms', whole)), body(api.GET('/v1/images/catalog', whole))]);
  const wanted = text.toLowerCase();
  const has = (name: string) => name.toLowerCase().includes(wanted);
  return [
    ...vms.filter((v) => has(v.name) || has(v.id) || v.ips.some(has)).slice(0, most).map((v): Found => ({ label: v.name, href: `/vms/${v.id}`, icon: 'node', kind: `VM, ${v.state}` })),
    ...images.filter((i) => has(i.name)).slice(0, most).map((i): Found => ({ label: i.name, href: `/images?filter=${encodeURIComponent(i.name)}`, icon: 'deployment', kind: 'image' })),
  ];
}
