/** Alerts with what they were found by: acknowledge, silence, resolve. */
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { Link } from 'wouter';
import { useParam } from '../ui/address';
import type { BulkAction } from '../ui/bulk';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import type { MenuAction } from '../ui/menu';
import { plural } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { reason } from '../ui/problem';
import { Status, words } from '../ui/status';
import { Choice, Table, type Column } from '../ui/table';
import { EndTime, Time, useNow } from '../ui/time';
import { toast } from '../ui/toast';
import { Allowed, api, schemas, useMay, useSeesAll, type Alert, type Cluster, type Severity, type Silence } from './api';
import { adviceFor, evidenceOf } from './evidence';
import { subjectPath, useClusters } from './links';
import { SeverityBadge, severityNames, silenced } from './states';

const columnsWith = (clusters: readonly Cluster[], now: number): Column<Alert>[] => [
  { id: 'title', header: 'Alert', cell: (a) => <Told alert={a} clusters={clusters} />, sort: (a) => a.title, text: (a) => `${a.title} ${a.description}` },
  { id: 'severity', header: 'Severity', cell: (a) => <SeverityBadge severity={a.severity} />, sort: (a) => a.severity },
  { id: 'state', header: 'State', cell: (a) => (a.state === 'open' ? <Status tone="bad" icon="alert">open</Status> : <Status tone="ok">resolved</Status>), sort: (a) => a.state },
  { id: 'evidence', header: 'Evidence', cell: (a) => <Evidence alert={a} />, text: (a) => JSON.stringify(a.evidence) },
  { id: 'handled', header: 'Handled', cell: (a) => <Handled alert={a} now={now} />, text: (a) => a.acknowledged_by },
  { id: 'source', header: 'Source', cell: (a) => words(a.source), sort: (a) => a.source, text: (a) => words(a.source), hidden: true },
  { id: 'tenant', header: 'Tenant', cell: (a) => a.tenant_id, sort: (a) => a.tenant_id, hidden: true },
  { id: 'created', header: 'Since', cell: (a) => <Time at={a.created_at} />, sort: (a) => a.created_at, text: () => '' },
  { id: 'resolved', header: 'Resolved', cell: (a) => <Time at={a.resolved_at} never="not yet" />, sort: (a) => a.resolved_at, text: () => '' },
];

/** What happened, and what to do about it while it lasts. */
function Told({ alert: a, clusters }: { alert: Alert; clusters: readonly Cluster[] }) {
  return (
    <span className="stack-tight wide-cell">
      <Link href={subjectPath(a, clusters)}>{a.title}</Link>
      {a.description !== '' && <span className="small">{a.description}</span>}
      {a.state === 'open' && <span className="muted small">{adviceFor(a.source)}</span>}
    </span>
  );
}

function Evidence({ alert: a }: { alert: Alert }) {
  const facts = evidenceOf(a.evidence);
  if (facts.length === 0) return null;
  return (
    <span className="tags">
      {facts.map(([name, value]) => (
        <span key={name} className="tag">
          {name}: {value}
        </span>
      ))}
    </span>
  );
}

/** Who acknowledged an alert, and until when it is silenced. */
function Handled({ alert: a, now }: { alert: Alert; now: number }) {
  const quiet = silenced(a, now);
  if (!a.acknowledged_at && !quiet) return null;
  return (
    <span className="stack-tight">
      {a.acknowledged_at && (
        <span>
          <Status tone="info" icon="check">acknowledged</Status> by {a.acknowledged_by} <Time at={a.acknowledged_at} />
        </span>
      )}
      {quiet && (
        <span>
          <Status tone="idle">silenced</Status>, ends <EndTime at={a.silenced_until} />
        </span>
      )}
    </span>
  );
}

/** For how long an alert may be silenced here. */
const spans = [
  { value: '3600', label: '1 hour' },
  { value: '28800', label: '8 hours' },
  { value: '86400', label: '1 day' },
  { value: '604800', label: '7 days' },
  { value: '2592000', label: '30 days' },
];

/** A shift. */
const usualSilence = 28_800;

function useAlertActions(): { actions: (alert: Alert) => MenuAction[]; bulk: BulkAction<Alert>[]; dialog: ReactNode } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [silencing, setSilencing] = useState<Alert>();
  const at = (a: Alert) => ({ params: { path: { id: a.id } } });
  const refresh = () => queries.invalidateQueries({ queryKey: ['alerts'] });
  const acknowledge = (a: Alert) =>
    confirm({
      title: 'Acknowledge the alert?',
      body: <p>{a.description || a.title}. Others see that you take care of it, until it resolves.</p>,
      action: 'Acknowledge',
      run: async () => {
        await body(api.POST('/alerts/{id}/ack', at(a)));
        await refresh();
      },
      done: 'The alert is acknowledged.',
    });
  const resolve = (a: Alert) =>
    confirm({
      title: 'Resolve the alert?',
      body: <p>{a.description || a.title}. If its cause is still there, a new alert opens within a minute.</p>,
      action: 'Resolve',
      run: async () => {
        await body(api.POST('/alerts/{id}/resolve', at(a)));
        await refresh();
      },
      done: 'The alert is resolved.',
    });
  const open = (a: Alert) => a.state === 'open';
  return {
    actions: (a) =>
      open(a)
        ? [
            ...(may('AcknowledgeAlert') && !a.acknowledged_at ? [{ label: 'Acknowledge…', run: () => acknowledge(a) }] : []),
            ...(may('SilenceAlert') ? [{ label: 'Silence…', run: () => setSilencing(a) }] : []),
            ...(may('ResolveAlert') ? [{ label: 'Resolve…', run: () => resolve(a) }] : []),
          ]
        : [],
    bulk: [
      ...(may('AcknowledgeAlert') ? [{ label: 'Acknowledge', applies: (a: Alert) => open(a) && !a.acknowledged_at, body: 'Others see that you take care of them, until they resolve.', run: (a: Alert) => api.POST('/alerts/{id}/ack', at(a)), after: refresh }] : []),
      ...(may('ResolveAlert') ? [{ label: 'Resolve', applies: open, body: 'New alerts open within a minute where the cause is still there.', run: (a: Alert) => api.POST('/alerts/{id}/resolve', at(a)), after: refresh }] : []),
    ],
    dialog: silencing && (
      <FormDialog<Silence>
        title="Silence the alert"
        schema={schemas.SilenceAlert}
        fields={[
          { name: 'secs', label: 'For', options: spans, hint: 'From now on' },
          { name: 'reason', label: 'Reason', hint: 'For those who read the audit log', wide: true },
        ]}
        values={{ secs: usualSilence }}
        action="Silence"
        onClose={() => setSilencing(undefined)}
        onSubmit={async (input) => {
          await body(api.POST('/alerts/{id}/silence', { ...at(silencing), body: input }));
          setSilencing(undefined);
          toast('The alert is silenced.');
          await refresh();
        }}
      >
        <p>{silencing.description || silencing.title}</p>
        <p className="muted small">Nobody is told of it, nor of another one of the same source and subject. It is still listed and counted.</p>
      </FormDialog>
    ),
  };
}

export function Alerts() {
  const [state, setState] = useParam<'open' | 'resolved' | 'all'>('state', 'open', ['open', 'resolved', 'all']);
  const [severity, setSeverity] = useParam<Severity | ''>('severity', '', severityNames);
  const { actions, bulk, dialog } = useAlertActions();
  const clusters = useClusters().data ?? [];
  const seesAll = useSeesAll();
  const now = useNow();
  const query = { ...(state !== 'all' && { state }), ...(severity && { severity }) };
  const pages = usePages(['alerts', 'list', query], (cursor, signal) => page(api.GET('/alerts', { params: { query: { ...query, cursor } }, signal })));
  const columns = columnsWith(clusters, now).filter((c) => (seesAll || c.id !== 'tenant') && (state !== 'open' || (c.id !== 'state' && c.id !== 'resolved')));
  return (
    <Page
      title="Alerts"
      lead="An alert is open while something needs attention, and resolves by itself when it no longer does."
      actions={
        <Allowed operation="EvaluateAlerts">
          <CheckNow />
        </Allowed>
      }
    >
      <Card flush>
        <Table
          label="Alerts"
          noun="alert"
          columns={columns}
          pages={pages}
          rowKey={(a) => a.id}
          actions={actions}
          bulk={bulk}
          tools={
            <>
              <Choice
                label="State"
                value={state}
                options={[
                  { value: 'open', label: 'Open' },
                  { value: 'resolved', label: 'Resolved' },
                  { value: 'all', label: 'Open and resolved' },
                ]}
                onChange={setState}
              />
              <Choice label="Severity" value={severity} options={[{ value: '', label: 'Any severity' }, ...severityNames.map((s) => ({ value: s, label: s }))]} onChange={setSeverity} />
            </>
          }
          empty={severity ? { icon: 'check', title: 'No alert matches' } : { icon: 'check', title: state === 'open' ? 'No alert is open' : 'No alerts', text: state === 'open' ? 'All is well.' : undefined }}
        />
      </Card>
      {dialog}
    </Page>
  );
}

/** Checks all conditions at once, rather than within a minute. */
function CheckNow() {
  const queries = useQueryClient();
  const check = useMutation({
    mutationFn: () => body(api.POST('/alerts/evaluate')),
    onSuccess: async (e) => {
      toast(`${plural(e.evaluated, 'condition was', 'conditions were')} checked: ${plural(e.open_alerts, 'alert is', 'alerts are')} open.`);
      await queries.invalidateQueries({ queryKey: ['alerts'] });
    },
    onError: (e) => toast(reason(e), 'bad'),
  });
  return (
    <button type="button" className="btn" disabled={check.isPending} onClick={() => check.mutate()}>
      {check.isPending ? 'Checking…' : 'Check now'}
    </button>
  );
}
