/** The audit log: who changed what, with filters, and the verification of its chain. */
import { useMutation } from '@tanstack/react-query';
import { useDeferredValue, useState } from 'react';
import actions from '../api/vm.audit.gen.json';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { CopyBox, Copyable } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { Card, Facts } from '../ui/facts';
import { Failure, Notice } from '../ui/notice';
import { count, plural } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status } from '../ui/status';
import { Choice, Table, useServerList, type Column } from '../ui/table';
import { DateTime, Time } from '../ui/time';
import { Allowed, api, type AuditEntry } from './api';

const columns: readonly Column<AuditEntry>[] = [
  { id: 'action', header: 'Action', cell: (e) => e.action, sort: (e) => e.action },
  { id: 'time', header: 'Time', cell: (e) => <DateTime at={e.time} />, sort: (e) => e.time, text: () => '' },
  { id: 'actor', header: 'Actor', cell: (e) => e.actor, sort: (e) => e.actor },
  { id: 'result', header: 'Result', cell: (e) => <Status tone={e.result === 'ok' ? 'ok' : 'bad'}>{e.result}</Status>, sort: (e) => e.result },
  { id: 'message', header: 'Message', cell: (e) => e.message, text: (e) => e.message },
  { id: 'tenant', header: 'Tenant', cell: (e) => e.tenant, sort: (e) => e.tenant },
  { id: 'target', header: 'Target', cell: (e) => (e.target ? <Copyable text={e.target} /> : null), text: (e) => e.target, hidden: true },
  { id: 'seq', header: 'Number', cell: (e) => count(e.seq), sort: (e) => e.seq, text: () => '', end: true, hidden: true },
];

const results = ['ok', 'denied', 'error'] as const;

export function Audit() {
  const { q } = useServerList();
  const [action, setAction] = useParam('action', '');
  const [actor, setActor] = useParam('actor', '');
  const [result, setResult] = useParam<'' | (typeof results)[number]>('result', '', results);
  const wantedAction = useDeferredValue(action.trim());
  const wantedActor = useDeferredValue(actor.trim());
  const query = { ...(q && { q }), ...(wantedAction && { action: wantedAction }), ...(wantedActor && { actor: wantedActor }), ...(result && { result }) };
  const pages = usePages(['audit', query], (cursor, signal) => page(api.GET('/api/audit', { params: { query: { cursor, ...query } }, signal })));
  return (
    <Page
      title="Audit log"
      lead="Who changed what, and who tried, newest first. Entries are chained, so that none can be altered or removed unseen."
      actions={
        <Allowed operation="VerifyAudit">
          <Verify />
        </Allowed>
      }
    >
      <Card flush>
        <Table
          label="Audit log"
          noun="entry"
          nouns="entries"
          columns={columns}
          pages={pages}
          rowKey={(e) => String(e.seq)}
          server={{ search: 'Text anywhere' }}
          tools={
            <>
              <input className="input narrow" aria-label="Action, exactly" placeholder="Action, exactly" list="audit-actions" maxLength={128} value={action} onChange={(e) => setAction(e.target.value)} />
              <datalist id="audit-actions">
                {actions.map((a) => (
                  <option key={a} value={a} />
                ))}
              </datalist>
              <input className="input narrow" aria-label="Actor, exactly" placeholder="Actor, exactly" maxLength={256} value={actor} onChange={(e) => setActor(e.target.value)} />
              <Choice label="Result" value={result} options={[{ value: '', label: 'Any result' }, ...results.map((r) => ({ value: r, label: r }))]} onChange={setResult} />
            </>
          }
          empty={{ icon: 'audit', title: 'No entry matches' }}
        />
      </Card>
    </Page>
  );
}

function Verify() {
  const [open, setOpen] = useState(false);
  const check = useMutation({ mutationFn: () => body(api.GET('/api/audit/verify')) });
  const v = check.data;
  return (
    <>
      <button
        type="button"
        className="btn btn-primary"
        onClick={() => {
          setOpen(true);
          check.mutate();
        }}
      >
        Verify
      </button>
      {open && (
        <Dialog title="Verification of the audit log" onClose={() => setOpen(false)}>
          <div className="dialog-body stack" role="status">
            {check.isPending && <p className="muted">Recomputing every hash…</p>}
            {check.error && <Failure error={check.error} />}
            {v && (
              <>
                <Notice tone={v.ok ? 'ok' : 'bad'}>
                  <strong>{v.ok ? `The log is whole: ${plural(v.verified, 'entry', 'entries')}, each fits the one before.` : `The log is not whole: ${v.reason}`}</strong>
                </Notice>
                {v.breaks.length > 0 && (
                  <ul className="log">
                    {v.breaks.map((b) => (
                      <li key={`${b.recorded} ${b.reason}`}>
                        <Time at={b.found_at} />
                        <span>
                          {b.reason} ({b.acknowledged_at ? `acknowledged by ${b.acknowledged_by}: ${b.note}` : 'not acknowledged'})
                        </span>
                      </li>
                    ))}
                  </ul>
                )}
                <Facts facts={[['Entries', count(v.entries)], ['Verified', count(v.verified)], ['Checkpoints', count(v.checkpoints.count)]]} />
                <CopyBox label="Hash of the last entry" text={v.head_hash} />
              </>
            )}
          </div>
        </Dialog>
      )}
    </>
  );
}
