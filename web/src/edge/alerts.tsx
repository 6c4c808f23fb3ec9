/** Firing and resolved alerts. */
import { Link } from 'wouter';
import { useParam } from '../ui/address';
import { page } from '../ui/client';
import { Card } from '../ui/facts';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status, words } from '../ui/status';
import { Choice, Table, type Column } from '../ui/table';
import { DateTime, Time } from '../ui/time';
import { advice } from './advice';
import { useAlertActions } from './alert-actions';
import { AlertGrouping, type GroupBy } from './alert-grouping';
import { subjectPath } from './alert-list';
import { api, shortId, type Alert } from './api';
import { SiteLink } from './links';
import { SiteChoice } from './site-choice';
import { Severity } from './states';

const kinds: readonly Alert['kind'][] = ['site_offline', 'cert_expiring', 'route_failing', 'delivery_blocked', 'deadletter_backlog', 'ota_failed', 'campaign_paused', 'deployment_failed', 'policy_violation', 'audit_broken'];

/** The query parameters for each choice of the filter. */
const handledFilter = { '': {}, open: { acknowledged: false, silenced: false }, acknowledged: { acknowledged: true }, silenced: { silenced: true } };

const columns: Column<Alert>[] = [
  { id: 'message', header: 'Alert', cell: (a) => <Told alert={a} />, sort: (a) => a.message, text: (a) => a.message },
  { id: 'severity', header: 'Severity', cell: (a) => <Severity severity={a.severity} />, sort: (a) => a.severity },
  { id: 'status', header: 'Status', cell: (a) => (a.status === 'firing' ? <Status tone="bad" icon="alert">firing</Status> : <Status tone="ok">resolved</Status>), sort: (a) => a.status },
  { id: 'handled', header: 'Handled', cell: (a) => <Handled alert={a} />, text: (a) => [a.acknowledged_by, a.acknowledge_note, a.silenced_by, a.silence_reason].join(' ') },
  { id: 'kind', header: 'Kind', cell: (a) => words(a.kind), sort: (a) => a.kind, text: (a) => words(a.kind), hidden: true },
  { id: 'subject', header: 'About', cell: (a) => <Link href={subjectPath(a)} title={a.subject}>{shortId(a.subject)}</Link>, text: (a) => a.subject, hidden: true },
  { id: 'site', header: 'Site', cell: (a) => <SiteLink id={a.site_id} />, text: (a) => a.site_id },
  { id: 'first', header: 'Since', cell: (a) => <Time at={a.first_seen_at} />, sort: (a) => a.first_seen_at, text: () => '' },
  { id: 'resolved', header: 'Resolved', cell: (a) => <Time at={a.resolved_at} never="not yet" />, sort: (a) => a.resolved_at, text: () => '' },
];

/** What happened, and what to do about it while it lasts. */
function Told({ alert: a }: { alert: Alert }) {
  return (
    <span className="stack-tight wide-cell">
      <Link href={subjectPath(a)}>{a.message}</Link>
      {a.status === 'firing' && <span className="muted small">{advice[a.kind]}</span>}
    </span>
  );
}

/** Firing alerts are all firing, and have no time of resolution. */
const firingColumns = columns.filter((c) => c.id !== 'resolved' && c.id !== 'status');

/** Who acknowledged an alert, and until when it is silenced. */
function Handled({ alert: a }: { alert: Alert }) {
  if (!a.acknowledged_at && !a.silenced_until) return null;
  return (
    <span className="stack-tight" style={{ minWidth: 165 }}>
      {a.acknowledged_at && (
        <span title={a.acknowledge_note}>
          <Status tone="info" icon="check">acknowledged</Status> by {a.acknowledged_by} <Time at={a.acknowledged_at} />
          {a.acknowledge_note && <span className="muted clip">{a.acknowledge_note}</span>}
        </span>
      )}
      {a.silenced_until && (
        <span title={a.silence_reason}>
          <Status tone="idle">silenced</Status> until <DateTime at={a.silenced_until} /> by {a.silenced_by}
          <span className="muted clip">{a.silence_reason}</span>
        </span>
      )}
    </span>
  );
}

export function Alerts() {
  const [status, setStatus] = useParam<'firing' | 'resolved' | 'all'>('status', 'firing', ['firing', 'resolved', 'all']);
  const [severity, setSeverity] = useParam<'' | Alert['severity']>('severity', '', ['critical', 'warning']);
  const [site, setSite] = useParam('site', '');
  const [handled, setHandled] = useParam<'' | 'open' | 'acknowledged' | 'silenced'>('handled', '', ['open', 'acknowledged', 'silenced']);
  const [kind, setKind] = useParam<'' | Alert['kind']>('kind', '', kinds);
  const [by, setBy] = useParam<GroupBy>('by', 'kind', ['kind', 'site']);
  const { actions, bulk, dialog } = useAlertActions();
  const pages = usePages(['alerts', 'list', status, severity, kind, site, handled], (cursor, signal) =>
    page(api.GET('/alerts', { params: { query: { cursor, status, ...(severity && { severity }), ...(kind && { kind }), ...(site && { site_id: site }), ...handledFilter[handled] } }, signal })));
  return (
    <Page title="Alerts" lead="An alert fires while something needs attention, and resolves by itself when it no longer does.">
      <div className="stack">
        <AlertGrouping by={by} onBy={setBy} status={status} kind={kind} site={site} onKind={setKind} onSite={setSite} />
        <Card flush>
          <Table
            label="Alerts"
            noun="alert"
            columns={status === 'firing' ? firingColumns : columns}
            pages={pages}
            rowKey={(a) => a.id}
            actions={actions}
            bulk={bulk}
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
                <Choice
                  label="Handled"
                  value={handled}
                  options={[
                    { value: '', label: 'Handled or not' },
                    { value: 'open', label: 'Neither acknowledged nor silenced' },
                    { value: 'acknowledged', label: 'Acknowledged' },
                    { value: 'silenced', label: 'Silenced' },
                  ]}
                  onChange={setHandled}
                />
                <Choice label="Kind" value={kind} options={[{ value: '', label: 'All kinds' }, ...kinds.map((k) => ({ value: k, label: words(k) }))]} onChange={setKind} />
                <SiteChoice value={site} onChange={setSite} />
              </>
            }
            empty={kind || severity || site || handled ? { icon: 'check', title: 'No alert matches' } : { icon: 'check', title: status === 'firing' ? 'No alert is firing' : 'No alerts', text: status === 'firing' ? 'All is well.' : undefined }}
          />
        </Card>
      </div>
      {dialog}
    </Page>
  );
}
