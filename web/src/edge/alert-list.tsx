/** Alerts in short, with the way to what each is about. */
import { Link } from 'wouter';
import { Time } from '../ui/time';
import type { Alert } from './api';
import { devicePath } from './links';
import { Severity } from './states';

/** The page of what an alert is about. */
export function subjectPath(alert: Pick<Alert, 'kind' | 'subject' | 'site_id'>): string {
  const id = encodeURIComponent(alert.subject);
  switch (alert.kind) {
    case 'route_failing':
      return `/routes/${id}`;
    case 'deadletter_backlog':
      return `/deadletters?route=${id}`;
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

export function AlertList({ alerts }: { alerts: readonly Alert[] }) {
  return (
    <ul className="log">
      {alerts.map((a) => (
        <li key={a.id}>
          <Time at={a.first_seen_at} />
          <Severity severity={a.severity} />
          <Link href={subjectPath(a)} className="quiet">{a.message}</Link>
        </li>
      ))}
    </ul>
  );
}
