/** Firing and resolved alerts. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { useParam } from '../ui/address';
import type { BulkAction } from '../ui/bulk';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import type { MenuAction } from '../ui/menu';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status, words } from '../ui/status';
import { Choice, Table, type Column } from '../ui/table';
import { DateTime, Time } from '../ui/time';
import { toast } from '../ui/toast';
import { subjectPath } from './alert-list';
import { api, schemas, shortId, useMay, type Alert } from './api';
import { SiteLink } from './links';
import { SiteChoice } from './site-choice';
import { Severity } from './states';

const kinds: readonly Alert['kind'][] = ['site_offline', 'cert_expiring', 'route_failing', 'delivery_blocked', 'deadletter_backlog', 'ota_failed', 'campaign_paused', 'deployment_failed', 'policy_violation', 'audit_broken'];

/** The query parameters for each choice of the filter. */
const handledFilter = { '': {}, open: { acknowledged: false, silenced: false }, acknowledged: { acknowledged: true }, silenced: { silenced: true } };

const columns: Column<Alert>[] = [
  { id: 'message', header: 'Alert', cell: (a) => a.message, sort: (a) => a.message },
  { id: 'severity', header: 'Severity', cell: (a) => <Severity severity={a.severity} />, sort: (a) => a.severity },
  { id: 'status', header: 'Status', cell: (a) => (a.status === 'firing' ? <Status tone="bad" icon="alert">firing</Status> : <Status tone="ok">resolved</Status>), sort: (a) => a.status },
  { id: 'handled', header: 'Handled', cell: (a) => <Handled alert={a} />, text: (a) => [a.acknowledged_by, a.acknowledge_note, a.silenced_by, a.silence_reason].join(' ') },
  { id: 'kind', header: 'Kind', cell: (a) => words(a.kind), sort: (a) => a.kind, text: (a) => words(a.kind) },
  { id: 'subject', header: 'About', cell: (a) => <Link href={subjectPath(a)} title={a.subject}>{shortId(a.subject)}</Link>, text: (a) => a.subject },
  { id: 'site', header: 'Site', cell: (a) => <SiteLink id={a.site_id} />, text: (a) => a.site_id },
  { id: 'first', header: 'Since', cell: (a) => <Time at={a.first_seen_at} />, sort: (a) => a.first_seen_at, text: () => '' },
  { id: 'resolved', header: 'Resolved', cell: (a) => <Time at={a.resolved_at} never="not yet" />, sort: (a) => a.resolved_at, text: () => '' },
];

/** Firing alerts have no time of resolution. */
const firingColumns = columns.filter((c) => c.id !== 'resolved');

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

/** The proposed duration of a silence: a shift. */
const proposedMs = 8 * 3600_000;

/** The actions on an alert, and the dialog for their input. */
function useAlertActions() {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<{ what: 'acknowledge' | 'silence'; alert: Alert; /** The proposed end of a silence. */ until?: string }>();
  const path = (alert: Alert) => ({ params: { path: { id: alert.id } } });
  const done = async (text: string) => {
    setAsking(undefined);
    toast(text);
    await queries.invalidateQueries({ queryKey: ['alerts'] });
  };
  const unsilence = (alert: Alert) =>
    confirm({
      title: 'End the silence?',
      body: <p>The activity log tells of “{alert.message}” again, and of the next alert of this kind about it.</p>,
      action: 'End the silence',
      run: async () => {
        await body(api.POST('/alerts/{id}/unsilence', path(alert)));
        await queries.invalidateQueries({ queryKey: ['alerts'] });
      },
      done: 'The alert is silenced no longer.',
    });
  const actions = (alert: Alert): MenuAction[] =>
    alert.status === 'firing'
      ? [
          ...(may('AcknowledgeAlert') ? [{ label: 'Acknowledge', run: () => setAsking({ what: 'acknowledge', alert }) }] : []),
          ...(may('SilenceAlert') ? [{ label: 'Silence', run: () => setAsking({ what: 'silence', alert, until: new Date(Date.now() + proposedMs).toISOString() }) }] : []),
          ...(may('UnsilenceAlert') && alert.silenced_until ? [{ label: 'End the silence', run: () => unsilence(alert) }] : []),
        ]
      : [];
  const dialog = asking && (asking.what === 'acknowledge' ? (
    <FormDialog<{ note?: string }>
      title="Acknowledge the alert"
      schema={schemas.AcknowledgeAlert}
      fields={[{ name: 'note', label: 'Note', kind: 'multiline', wide: true }]}
      action="Acknowledge"
      onClose={() => setAsking(undefined)}
      onSubmit={async (input) => {
        await body(api.POST('/alerts/{id}/acknowledge', { ...path(asking.alert), body: input }));
        await done('The alert is acknowledged.');
      }}
    >
      <p>{asking.alert.message}</p>
      <p className="muted small">Others see that you take care of it, until it resolves.</p>
    </FormDialog>
  ) : (
    <FormDialog<{ until: string; reason: string }>
      title="Silence the alert"
      schema={schemas.SilenceAlert}
      fields={[
        { name: 'until', label: 'Until', hint: 'Your time, within a year.' },
        { name: 'reason', label: 'Reason', wide: true },
      ]}
      values={{ until: asking.until }}
      action="Silence"
      onClose={() => setAsking(undefined)}
      onSubmit={async (input) => {
        await body(api.POST('/alerts/{id}/silence', { ...path(asking.alert), body: input }));
        await done('The alert is silenced.');
      }}
    >
      <p>{asking.alert.message}</p>
      <p className="muted small">The activity log leaves it out, and so the next alert of this kind about the same. It is still listed and counted.</p>
    </FormDialog>
  ));
  const silenceFor = (alert: Alert) =>
    api.POST('/alerts/{id}/silence', { ...path(alert), body: { until: new Date(Date.now() + proposedMs).toISOString(), reason: 'silenced together with others' } });
  const after = () => queries.invalidateQueries({ queryKey: ['alerts'] });
  const bulk: BulkAction<Alert>[] = [
    ...(may('AcknowledgeAlert')
      ? [{ label: 'Acknowledge', applies: (a: Alert) => a.status === 'firing' && !a.acknowledged_at, body: 'Others see that you take care of them, until they resolve.', run: (a: Alert) => api.POST('/alerts/{id}/acknowledge', { ...path(a), body: {} }), after }]
      : []),
    ...(may('SilenceAlert')
      ? [{ label: 'Silence for 8 hours', applies: (a: Alert) => a.status === 'firing' && !a.silenced_until, body: 'The activity log leaves them out. They are still listed and counted.', run: silenceFor, after }]
      : []),
    ...(may('UnsilenceAlert')
      ? [{ label: 'End the silence', applies: (a: Alert) => a.status === 'firing' && Boolean(a.silenced_until), body: 'The activity log shows them again.', run: (a: Alert) => api.POST('/alerts/{id}/unsilence', path(a)), after }]
      : []),
  ];
  return { actions, bulk, dialog };
}

export function Alerts() {
  const [status, setStatus] = useParam<'firing' | 'resolved' | 'all'>('status', 'firing', ['firing', 'resolved', 'all']);
  const [severity, setSeverity] = useParam<'' | Alert['severity']>('severity', '', ['critical', 'warning']);
  const [site, setSite] = useParam('site', '');
  const [handled, setHandled] = useParam<'' | 'open' | 'acknowledged' | 'silenced'>('handled', '', ['open', 'acknowledged', 'silenced']);
  const [kind, setKind] = useParam<'' | Alert['kind']>('kind', '', kinds);
  const { actions, bulk, dialog } = useAlertActions();
  const pages = usePages(['alerts', 'list', status, severity, kind, site, handled], (cursor, signal) =>
    page(api.GET('/alerts', { params: { query: { cursor, status, ...(severity && { severity }), ...(kind && { kind }), ...(site && { site_id: site }), ...handledFilter[handled] } }, signal })));
  return (
    <Page title="Alerts" lead="An alert fires while something needs attention, and resolves by itself when it no longer does.">
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
      {dialog}
    </Page>
  );
}
