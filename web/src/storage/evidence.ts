/** The numbers that an alert was found by, and what to do about it. */
import { bytes } from '../ui/size';

/** A fact of an alert's evidence in words: `used_percent` 91 is “used percent: 91 %”. */
export function evidenceOf(evidence: Record<string, unknown>): [name: string, value: string][] {
  // The limit says what is counted.
  const counted = evidence['limit'] === 'bytes' ? ['used', 'max'] : [];
  return Object.entries(evidence).map(([name, value]) => {
    const words = name.replaceAll('_', ' ');
    if (typeof value === 'number' && name.endsWith('_percent')) return [words.replace(/ percent$/, ''), `${value} %`];
    if (typeof value === 'number' && (name.includes('_bytes') || counted.includes(name))) return [words.replace(' bytes', ''), bytes(value)];
    return [words, typeof value === 'string' ? value : JSON.stringify(value)];
  });
}

/** What to do, by the source of an alert. */
const advices: Record<string, string> = {
  cluster_unhealthy: 'Look at what the cluster says of itself.',
  cluster_failing: 'Look at what the cluster says of itself at once: data may be out of reach.',
  backend_unreachable: 'Check the storage system and the network to it, and discover the backend.',
  pool_near_full: 'Add storage, or delete what is not needed.',
  pool_almost_full: 'Add storage now, or delete what is not needed: a full pool stops those who write to it.',
  osd_down: 'Check its host and its device. Take it out if it does not come back.',
  capacity_forecast: 'Order storage, or delete what is not needed.',
  jobs_failed: 'Read the errors of the jobs. Begin what is still wanted again.',
  quota_near: 'Give the tenant a larger quota, or ask it to delete something.',
  quota_almost_used: 'Give the tenant a larger quota, or ask it to delete something: soon it cannot make anything more.',
  audit_broken: 'Verify the audit log, find out who changed the database, and acknowledge the break.',
};

export const adviceFor = (source: string) => advices[source] ?? '';
