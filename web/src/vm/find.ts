/** Finds VMs on the server, for the command palette. */
import { body } from '../ui/client';
import type { Found } from '../ui/palette';
import { api } from './api';
import { vmPath } from './links';
import { stateText } from './states';

/** How many are offered. */
const most = 8;

export async function find(q: string, signal: AbortSignal): Promise<Found[]> {
  const { items } = await body(api.GET('/api/vms', { params: { query: { q, limit: most } }, signal }));
  return items.map((v) => ({ label: v.name, href: vmPath(v), icon: 'node', kind: `VM${v.tenant ? ` of ${v.tenant}` : ''}, ${stateText(v).text}` }));
}
