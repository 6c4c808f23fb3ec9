/** Finds volumes on the server, for the command palette. */
import { body } from '../ui/client';
import type { Found } from '../ui/palette';
import { api } from './api';
import { volumePath } from './links';
import { volumeText } from './states';

/** How many are offered. */
const most = 8;

export async function find(q: string, signal: AbortSignal): Promise<Found[]> {
  const volumes = await body(api.GET('/volumes', { params: { query: { q, limit: most } }, signal }));
  return volumes.map((v) => ({ label: v.name, href: volumePath(v), icon: 'deployment', kind: `volume${v.tenant_id ? ` of ${v.tenant_id}` : ''}, ${volumeText(v.state)}` }));
}
