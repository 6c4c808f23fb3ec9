/** Short lists of alerts, with links to their subjects. */
import { Link } from 'wouter';
import { count } from '../ui/number';
import { words } from '../ui/status';
import { Time } from '../ui/time';
import type { AlertGroup } from './alert-groups';
import type { Alert } from './api';
import { devicePath } from './links';
import { Severity } from './states';

/** The path of the page about an alert's subject. */
export function subjectPath(alert: Pick<Alert, 'kind' | 'subject' | 'site_id'>): string {
  const id = encodeURIComponent(alert.subject);
  switch (alert.kind) {
    case 'route_failing':
    case 'delivery_blocked':
      return `/routes/${id}`;
    case 'deadletter_backlog':
      return `/deadletters?route=${id}`;
    case 'audit_broken':
      return '/audit';
    case 'ota_failed':
      return devicePath(alert.subject);
    case 'campaign_paused':
      return `/campaigns/${id}`;
    case 'deployment_failed':
    case 'policy_violation':
      return `/deployments/${id}`;
    case 'site_offline':
    case 'cert_expiring':
      return `/sites/${id}`;
  }
}

/** Groups of alerts, each with its newest alerts and a link to the others. */
export function AlertGroups({ groups }: { groups: readonly AlertGroup[] }) {
  return (
    <ul className="log">
      {groups.flatMap((g) => [
        ...g.newest.map((a) => (
          <li key={a.id}>
            <Time at={a.first_seen_at} />
            <Severity severity={a.severity} />
            <Link href={subjectPath(a)} className="quiet">{a.message}</Link>
          </li>
        )),
        ...(g.count > g.newest.length
          ? [
              <li key={g.kind}>
                <span />
                <Severity severity={g.severity} />
                <Link href={`/alerts?kind=${g.kind}`}>
                  and {count(g.count - g.newest.length)} more: {words(g.kind)}
                </Link>
              </li>,
            ]
          : []),
      ])}
    </ul>
  );
}
