/** How the daemon's API is asked what a VM uses. */
import { body } from '../../ui/client';
import type { Measured } from '../../ui/usage/plots';
import { api } from '../api';

export const measured = (id: string): Measured => ({
  id,
  metrics: (signal) => body(api.GET('/v1/vms/{id}/metrics', { params: { path: { id } }, signal })),
  history: (query, signal) => body(api.GET('/v1/vms/{id}/history', { params: { path: { id }, query }, signal })),
});
