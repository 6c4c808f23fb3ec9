/** How many devices a campaign reaches, and how its stages divide them. */
import { body } from '../../ui/client';
import { api, type Campaign } from '../api';

/**
 * The number of devices that have been asked once a stage (from 0) has started. Every stage has at
 * least one device.
 */
export function upTo(stages: readonly number[], stage: number, total: number): number {
  if (stage < 0) return 0;
  return Math.min(total, Math.max(stage + 1, Math.ceil((total * (stages[stage] ?? 100)) / 100)));
}

/**
 * Counts the devices that match now. Which ones a campaign has is settled when it is started.
 */
export const countTargets = async (targets: Campaign['targets'], signal: AbortSignal) => (await body(api.POST('/ota/campaigns/count-targets', { body: targets, signal }))).devices;
