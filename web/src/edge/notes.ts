/** Notes about the counts in the overview. */
import { count, plural } from '../ui/number';
import type { Overview } from './api';

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);
const of = (counts: Record<string, number>, ...states: string[]) => states.reduce((n, s) => n + (counts[s] ?? 0), 0);

/** A value with a note about it. */
export interface Said {
  value: string;
  note: string | undefined;
  bad: boolean;
}

/** The ends of an update without the requested version. A campaign counts all of them as failed. */
export const failedEnds = ['failed', 'rejected', 'canceled', 'timed_out', 'rolled_back'];

const joined = (...notes: (string | false)[]) => notes.filter(Boolean).join(', ') || undefined;

export function devicesNote(o: Pick<Overview, 'devices' | 'ota'>): Said {
  const failed = of(o.ota, ...failedEnds);
  return { value: count(o.devices), note: failed ? plural(failed, 'failed update') : undefined, bad: failed > 0 };
}

/** Only deployments whose agents are online and report them as running count as up. */
export function deploymentsNote(o: Pick<Overview, 'deployments'>): Said {
  const failed = of(o.deployments, 'failed', 'denied');
  const unknown = of(o.deployments, 'unknown');
  return {
    value: `${count(of(o.deployments, 'running'))} of ${count(sum(o.deployments))}`,
    note: joined(failed > 0 && `${count(failed)} failed or denied`, unknown > 0 && `${count(unknown)} unknown: site not online`),
    bad: failed > 0 || unknown > 0,
  };
}

export function campaignsNote(o: Pick<Overview, 'campaigns'>): Said {
  const paused = of(o.campaigns, 'paused');
  const drafts = of(o.campaigns, 'draft');
  return {
    value: count(of(o.campaigns, 'running')),
    note: joined(paused > 0 && `${count(paused)} ${paused === 1 ? 'waits' : 'wait'} for a decision`, drafts > 0 && plural(drafts, 'draft')),
    bad: paused > 0,
  };
}

/** Routes are failing if the control plane has an alert for them. */
export function routesNote(o: Pick<Overview, 'routes' | 'alerts'>): { note: string; bad: boolean } {
  const disabled = of(o.routes, 'disabled');
  const failing = of(o.alerts, 'route_failing', 'delivery_blocked');
  return { note: joined(plural(sum(o.routes), 'route'), failing > 0 && `${count(failing)} failing`, disabled > 0 && `${count(disabled)} disabled`) ?? '', bad: failing > 0 };
}
