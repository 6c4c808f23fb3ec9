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

/** The list of the devices whose updates failed, or of all devices. */
export const devicesHref = (o: Pick<Overview, 'ota'>) => (of(o.ota, ...failedEnds) > 0 ? `/devices?update=${failedEnds.join()}` : '/devices');

/** The list of the deployments that the note counts, or of all deployments. */
export function deploymentsHref(o: Pick<Overview, 'deployments'>): string {
  const statuses = [...(of(o.deployments, 'failed', 'denied') > 0 ? ['failed', 'denied'] : []), ...(of(o.deployments, 'unknown') > 0 ? ['unknown'] : [])];
  return statuses.length > 0 ? `/deployments?status=${statuses.join()}` : '/deployments';
}

/** The list of the campaigns that need a decision, or of those that run. */
export const campaignsHref = (o: Pick<Overview, 'campaigns'>) => (of(o.campaigns, 'paused') > 0 ? '/campaigns?status=paused' : '/campaigns?status=running');

/** The list of the routes that fail, or of all routes. */
export const routesHref = (o: Pick<Overview, 'routes_failing'>) => (o.routes_failing > 0 ? '/routes?status=failing' : '/routes');

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
export function routesNote(o: Pick<Overview, 'routes' | 'routes_failing'>): { note: string; bad: boolean } {
  const disabled = of(o.routes, 'disabled');
  const failing = o.routes_failing;
  return { note: joined(plural(sum(o.routes), 'route'), failing > 0 && `${count(failing)} failing`, disabled > 0 && `${count(disabled)} disabled`) ?? '', bad: failing > 0 };
}
