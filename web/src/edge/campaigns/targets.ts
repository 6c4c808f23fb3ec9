/**
 * The target devices of a campaign, by the same rules as in the control plane, and their division
 * into stages.
 */
import { page } from '../../ui/client';
import { api, pageLimit, type Campaign, type Device } from '../api';

type Targets = Campaign['targets'];

/**
 * A device is a target if it is named. It is also a target if it has all the labels and, if sites
 * are named, belongs to one of them.
 */
export function isTarget(targets: Targets, device: Pick<Device, 'device_id' | 'site_id' | 'labels'>): boolean {
  const sites = targets.site_ids ?? [];
  const labels = Object.entries(targets.labels ?? {});
  if (targets.device_ids?.includes(device.device_id)) return true;
  if (sites.length === 0 && labels.length === 0) return false;
  if (sites.length > 0 && !sites.includes(device.site_id)) return false;
  return labels.every(([k, v]) => device.labels[k] === v);
}

/**
 * The number of devices that have been asked once a stage (from 0) has started. Every stage has at
 * least one device.
 */
export function upTo(stages: readonly number[], stage: number, total: number): number {
  if (stage < 0) return 0;
  return Math.min(total, Math.ceil((total * (stages[stage] ?? 100)) / 100));
}

/** The maximum number of pages for counting devices. */
const mostPages = 10;

export interface TargetCount {
  devices: number;
  /** Whether there are more devices than were counted. */
  atLeast: boolean;
}

/**
 * Counts the devices that match now. The control plane itself determines the targets when the
 * campaign starts.
 */
export async function countTargets(targets: Targets, signal: AbortSignal): Promise<TargetCount> {
  let devices = 0;
  let cursor: string | undefined;
  for (let i = 0; i < mostPages; i++) {
    const next = await page(api.GET('/devices', { params: { query: { limit: pageLimit, cursor } }, signal }));
    devices += next.items.filter((d) => isTarget(targets, d)).length;
    cursor = next.next;
    if (!cursor) return { devices, atLeast: false };
  }
  return { devices, atLeast: true };
}
