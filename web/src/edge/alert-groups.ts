/**
 * Firing alerts grouped by kind, most severe first, so that frequent alerts do not hide severe
 * ones.
 */
import type { Alert, Overview } from './api';

export interface AlertGroup {
  kind: Alert['kind'];
  severity: Alert['severity'];
  /** The number of firing alerts according to the control plane. */
  count: number;
  /** The newest alerts of the kind. */
  newest: readonly Alert[];
}

/** The kinds with firing alerts, in an order that does not depend on their counts. */
export const firingKinds = (o: Pick<Overview, 'alerts'>) => (Object.keys(o.alerts) as Alert['kind'][]).filter((k) => (o.alerts[k] ?? 0) > 0).sort();

const rank: Record<Alert['severity'], number> = { critical: 0, warning: 1 };

/** Groups the newest alerts of each kind. The counts may be slightly older than the alerts. */
export function alertGroups(counts: Record<string, number>, alerts: readonly Alert[]): AlertGroup[] {
  const groups = new Map<string, Alert[]>();
  for (const a of alerts) groups.set(a.kind, [...(groups.get(a.kind) ?? []), a]);
  const time = (g: AlertGroup) => Date.parse(g.newest[0]?.first_seen_at ?? '');
  return [...groups.values()]
    .flatMap((newest) => (newest[0] ? [{ kind: newest[0].kind, severity: newest[0].severity, count: Math.max(newest.length, counts[newest[0].kind] ?? 0), newest }] : []))
    .sort((a, b) => rank[a.severity] - rank[b.severity] || time(b) - time(a));
}
