/** How VM management is asked what a VM uses. */
import { body } from '../../ui/client';
import type { Measured } from '../../ui/usage/plots';
import { api, type VM } from '../api';
import { at } from '../links';

export function measured(vm: VM): Measured {
  const { path, query } = at(vm).params;
  return {
    id: vm.id,
    metrics: async (signal) => {
      const m = await body(api.GET('/api/vms/{name}/metrics', { params: { path, query }, signal }));
      // Without a time, the VM does not run.
      if (m.at === undefined) return undefined;
      return { at: m.at, cpu_seconds: m.cpu_seconds ?? 0, memory_bytes: m.memory_usage, disk_read_bytes: m.disk_read_bytes ?? 0, disk_written_bytes: m.disk_written_bytes ?? 0, net_received_bytes: m.network_rx, net_sent_bytes: m.network_tx };
    },
    history: (asked, signal) => body(api.GET('/api/vms/{name}/history', { params: { path, query: { ...query, ...asked } }, signal })),
  };
}
