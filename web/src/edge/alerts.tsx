/** What needs attention, and what did. */
import { useState } from 'react';
import { Link, useLocation, useSearchParams } from 'wouter';
import { page } from '../ui/client';
import { Card } from '../ui/facts';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status, words } from '../ui/status';
import { Choice, Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { subjectPath } from './alert-list';
import { api, shortId, type Alert } from './api';
import { SiteLink } from './links';
import { SiteChoice } from './site-choice';
import { Severity } from './states';

const kinds: readonly Alert['kind'][] = ['site_offline', 'cert_expiring', 'route_failing', 'delivery_blocked', 'deadletter_backlog', 'ota_failed', 'campaign_paused', 'deployment_failed', 'policy_violation', 'audit_broken'];

const columns: Column<Alert>[] = [
  { id: 'message', header: 'Alert', cell: (a) => a.message, sort: (a) => a.message },
  { id: 'severity', header: 'Severity', cell: (a) => <Severity severity={a.severity} />, sort: (a) => a.severity },
  { id: 'status', header: 'Status', cell: (a) => (a.status === 'firing' ? <Status tone="bad" icon="alert">firing</Status> : <Status tone="ok">resolved</Status>), sort: (a) => a.status },
  { id: 'kind', header: 'Kind', cell: (a) => words(a.kind), sort: (a) => a.kind, text: (a) => words(a.kind) },
  { id: 'subject', header: 'About', cell: (a) => <Link href={subjectPath(a)} title={a.subject}>{shortId(a.subject)}</Link>, text: (a) => a.subject },
  { id: 'site', header: 'Site', cell: (a) => <SiteLink id={a.site_id} />, text: (a) => a.site_id },
  { id: 'first', header: 'Since', cell: (a) => <Time at={a.first_seen_at} />, sort: (a) => a.first_seen_at, text: () => '' },
  { id: 'resolved', header: 'Resolved', cell: (a) => <Time at={a.resolved_at} never="not yet" />, sort: (a) => a.resolved_at, text: () => '' },
];

export function Alerts() {
  const [status, setStatus] = useState<'firing' | 'resolved' | 'all'>('firing');
  const [severity, setSeverity] = useState<'' | Alert['severity']>('');
  const [site, setSite] = useState('');
  // The overview leads to one kind.
  const [, navigate] = useLocation();
  const [search] = useSearchParams();
  const kind = kinds.find((k) => k === search.get('kind')) ?? '';
  const pages = usePages(['alerts', 'list', status, severity, kind, site], (cursor, signal) =>
    page(api.GET('/alerts', { params: { query: { cursor, status, ...(severity && { severity }), ...(kind && { kind }), ...(site && { site_id: site }) } }, signal })));
  return (
    <Page title="Alerts" lead="An alert fires while something needs attention, and resolves by itself when it no longer does.">
      <Card flush>
        <Table
          label="Alerts"
          noun="alert"
          columns={columns}
          pages={pages}
          rowKey={(a) => a.id}
          tools={
            <>
              <Choice
                label="Status"
                value={status}
                options={[
                  { value: 'firing', label: 'Firing' },
                  { value: 'resolved', label: 'Resolved' },
                  { value: 'all', label: 'Firing and resolved' },
                ]}
                onChange={setStatus}
              />
              <Choice
                label="Severity"
                value={severity}
                options={[
                  { value: '', label: 'Any severity' },
                  { value: 'critical', label: 'Critical' },
                  { value: 'warning', label: 'Warning' },
                ]}
                onChange={setSeverity}
              />
              <Choice label="Kind" value={kind} options={[{ value: '', label: 'All kinds' }, ...kinds.map((k) => ({ value: k, label: words(k) }))]} onChange={(k) => navigate(k ? `/alerts?kind=${k}` : '/alerts')} />
              <SiteChoice value={site} onChange={setSite} />
            </>
          }
          empty={kind || severity || site ? { icon: 'check', title: 'No alert matches' } : { icon: 'check', title: status === 'firing' ? 'No alert is firing' : 'No alerts', text: status === 'firing' ? 'All is well.' : undefined }}
        />
      </Card>
    </Page>
  );
}
