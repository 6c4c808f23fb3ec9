/** The outcomes of a campaign's devices. */
import type { Part } from '../../ui/progress';
import { words } from '../../ui/status';
import type { Campaign } from '../api';
import { outcomeTones } from '../states';

export const outcomes = ['succeeded', 'failed', 'in_progress', 'pending', 'waiting', 'removed'] as const;

/** The parts of a progress bar. Devices that have not started are left empty. */
export function outcomeParts(campaign: Pick<Campaign, 'counts'>): Part[] {
  return (['succeeded', 'failed', 'in_progress'] as const).map((o) => ({ label: words(o), value: campaign.counts[o], tone: outcomeTones[o] }));
}
