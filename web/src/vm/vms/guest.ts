/** How VM management reaches the console and the screen of a VM. */
import { useMemo } from 'react';
import { body } from '../../ui/client';
import type { Guest } from '../../ui/viewer/socket';
import { api, type VM } from '../api';
import { at } from '../links';

const paths = { console: '/api/vms/{name}/console', screen: '/api/vms/{name}/screen' } as const;

export function useGuest({ name, tenant = '' }: VM): Guest {
  return useMemo(() => {
    const of = at({ name, tenant });
    return {
      name,
      address: (channel) => `${paths[channel].replace('{name}', encodeURIComponent(name))}?tenant=${encodeURIComponent(tenant)}`,
      ask: (channel) => api.GET(paths[channel], of),
      ticket: async () => (await body(api.POST('/api/vms/{name}/tickets', of))).ticket,
    };
  }, [name, tenant]);
}
