/** Named sizes of VMs, and how they fit into a quota. */
import type { Tenant } from '../api';

interface Size {
  label: string;
  cpus?: number;
  /** MiB */
  memory?: number;
}

export const sizes: Record<string, Size> = {
  small: { label: 'Small: 1 vCPU, 512 MiB', cpus: 1, memory: 512 },
  medium: { label: 'Medium: 2 vCPUs, 2 GiB', cpus: 2, memory: 2048 },
  large: { label: 'Large: 4 vCPUs, 8 GiB', cpus: 4, memory: 8192 },
  custom: { label: 'Other…' },
};

/** Processors and memory of the chosen size, or those that were typed. */
export function sizeOf(chosen: { size?: string; cpus?: number; memory?: number }): { cpus?: number; memory?: number } {
  const size = sizes[chosen.size ?? ''];
  const { cpus, memory } = size?.cpus === undefined ? chosen : size;
  return { ...(cpus !== undefined && { cpus }), ...(memory !== undefined && { memory }) };
}

const labels = { vms: 'VMs', cpus: 'vCPUs', memory: 'of memory', disk: 'of disk' } as const;

export interface Left {
  of: keyof typeof labels;
  label: string;
  limit: number;
  /** May be negative, if the limit was lowered. */
  left: number;
  wanted: number;
}

/** What a quota leaves for something new, for each limit that it has. */
export function lacking({ quota, used }: Pick<Tenant, 'quota' | 'used'>, wanted: Record<keyof typeof labels, number>): Left[] {
  return (Object.keys(labels) as (keyof typeof labels)[]).flatMap((of) => {
    const limit = quota[of];
    return limit === undefined ? [] : [{ of, label: labels[of], limit, left: limit - used[of], wanted: wanted[of] }];
  });
}
