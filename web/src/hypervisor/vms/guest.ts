/** How the daemon's API reaches the console and the screen of a VM. */
import { useMemo } from 'react';
import { body } from '../../ui/client';
import type { Guest } from '../../ui/viewer/socket';
import { api, type VM } from '../api';

const paths = { console: '/v1/vms/{id}/console', screen: '/v1/vms/{id}/vnc' } as const;

export function useGuest({ id, name }: VM): Guest {
  return useMemo(() => {
    const of = { params: { path: { id } } };
    return {
      name,
      address: (channel) => paths[channel].replace('{id}', encodeURIComponent(id)),
      ask: (channel) => api.GET(paths[channel], of),
      ticket: async () => (await body(api.POST('/v1/vms/{id}/tickets', of))).ticket,
    };
  }, [id, name]);
}
