/** The audit log: who changed what, with filters and verification of its chain. */
import { useMutation } from '@tanstack/react-query';
import { useDeferredValue, useState } from 'react';
import actions from '../api/edge.audit.gen.json';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { CopyBox, Copyable } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { Card, Facts } from '../ui/facts';
import { JsonDiff } from '../ui/json-diff';
import { JsonView } from '../ui/json-view';
import { Failure, Notice } from '../ui/notice';
import { count, plural } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Choice, Table, useServerList, type Column } from '../ui/table';
import { DateTime, Time } from '../ui/time';
import { Allowed, api, type AuditEntry } from './api';
import { changeOf } from './audit-change';
import { Id, SiteLink } from './links';
import { SiteChoice } from './site-choice';
import { Result } from './states';

/** Agents register devices by the thousand, which would hide what people did. */
const registration = 'device.register';

/** Anybody can write anything into an address. */
const valid = (time: string) => time !== '' && !Number.isNaN(Date.parse(time));

export function Audit() {
  const [site, setSite] = useParam('site', '');
  const [action, setAction] = useParam('action', '');
  const [actor, setActor] = useParam('actor', '');
  const [target, setTarget] = useParam('target', '');
  const { q } = useServerList();
  const [result, setResult] = useParam<'' | AuditEntry['result']>('result', '', ['ok', 'denied', 'error']);
  const [from, setFrom] = useParam('from', '');
  const [to, setTo] = useParam('to', '');
  const [withRegistrations, setWithRegistrations] = useParam('registrations', '', ['', 'yes']);
  const registrations = withRegistrations === 'yes';
  const [open, setOpen] = useState<AuditEntry>();
  const wantedActor = useDeferredValue(actor.trim());
  const wantedAction = useDeferredValue(action.trim());
  const wantedTarget = useDeferredValue(target.trim());
  const query = {
    ...(site && { site_id: site }),
    ...(wantedAction ? { action: wantedAction } : !registrations && { without_action: registration }),
    ...(wantedActor && { actor: wantedActor }),
    ...(wantedTarget && { target: wantedTarget }),
    ...(q && { q }),
    ...(result && { result }),
    ...(valid(from) && { from: new Date(from).toISOString() }),
    ...(valid(to) && { to: new Date(to).toISOString() }),
  };
  const pages = usePages(['audit', query], (cursor, signal) => page(api.GET('/audit', { params: { query: { cursor, ...query } }, signal })));
  const columns: Column<AuditEntry>[] = [
    {
      id: 'action',
      header: 'Action',
      cell: (e) => (
        <button type="button" className="link" onClick={() => setOpen(e)}>
          {e.action}
        </button>
      ),
      sort: (e) => e.action,
    },
    { id: 'time', header: 'Time', cell: (e) => <DateTime at={e.time} />, sort: (e) => e.time, text: () => '' },
    { id: 'actor', header: 'Actor', cell: (e) => <span className="nowrap"><Id id={e.actor} /> <span className="muted">({e.actor_type})</span></span>, sort: (e) => e.actor },
    { id: 'result', header: 'Result', cell: (e) => <Result result={e.result} />, sort: (e) => e.result },
    { id: 'message', header: 'Message', cell: (e) => e.message, text: (e) => e.message },
    { id: 'target', header: 'Target', cell: (e) => e.target && <Id id={e.target} />, text: (e) => e.target },
    { id: 'site', header: 'Site', cell: (e) => <SiteLink id={e.site_id} />, text: (e) => e.site_id, hidden: true },
    { id: 'seq', header: 'Number', cell: (e) => count(e.seq), sort: (e) => e.seq, end: true, hidden: true },
  ];
  return (
    <Page
      title="Audit log"
      lead="Who changed what, and who tried. Entries are chained by SHA-256, so that none can be altered or removed unseen."
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
          rowKey={(e) => e.id}
          server={{ search: 'Text anywhere' }}
          tools={
            <>
              {/* Actions of the control plane itself belong to no operation, so any text is
                  allowed. */}
              <input className="input narrow" aria-label="Action, exactly" placeholder="Action, exactly" list="audit-actions" value={action} onChange={(e) => setAction(e.target.value)} />
              <datalist id="audit-actions">
                {actions.map((a) => (
                  <option key={a} value={a} />
                ))}
              </datalist>
              <SiteChoice value={site} onChange={setSite} />
              <input className="input narrow" aria-label="Actor, exactly" placeholder="Actor, exactly" value={actor} onChange={(e) => setActor(e.target.value)} />
              <input className="input narrow" aria-label="Target, exactly" placeholder="Target, exactly" value={target} onChange={(e) => setTarget(e.target.value)} />
              <Choice
                label="Result"
                value={result}
                options={[
                  { value: '', label: 'Any result' },
                  { value: 'ok', label: 'ok' },
                  { value: 'denied', label: 'denied' },
                  { value: 'error', label: 'error' },
                ]}
                onChange={setResult}
              />
              <span className="row nowrap">
                <label className="small muted" htmlFor="audit-from">
                  From
                </label>
                <input id="audit-from" className="input narrow" type="datetime-local" value={from} onChange={(e) => setFrom(e.target.value)} />
              </span>
              <span className="row nowrap">
                <label className="small muted" htmlFor="audit-to">
                  to
                </label>
                <input id="audit-to" className="input narrow" type="datetime-local" value={to} onChange={(e) => setTo(e.target.value)} />
              </span>
              <label className="check small">
                <input type="checkbox" checked={registrations || wantedAction !== ''} disabled={wantedAction !== ''} onChange={(e) => setWithRegistrations(e.target.checked ? 'yes' : '')} /> Show registrations of devices
              </label>
            </>
          }
          empty={{ icon: 'audit', title: 'No entry matches', text: wantedAction || registrations ? undefined : 'Registrations of devices are left out.' }}
        />
      </Card>
      {open && <EntryDialog entry={open} onClose={() => setOpen(undefined)} />}
    </Page>
  );
}

function EntryDialog({ entry: e, onClose }: { entry: AuditEntry; onClose: () => void }) {
  const { change, rest } = changeOf(e.detail);
  return (
    <Dialog title={`Entry ${count(e.seq)}: ${e.action}`} onClose={onClose} wide>
      <div className="dialog-body stack">
        <Facts
          facts={[
            ['Time', <DateTime key="t" at={e.time} />],
            ['Actor', <Copyable key="a" text={e.actor}><span><code>{e.actor}</code> ({e.actor_type})</span></Copyable>],
            ['Result', <Result key="r" result={e.result} />],
            ['Message', e.message],
            e.target !== '' && ['Target', <Copyable key="g" text={e.target} />],
            e.site_id !== '' && ['Site', <span key="s"><SiteLink id={e.site_id} /> <Copyable text={e.site_id} /></span>],
            e.org_id !== '' && ['Org', <Copyable key="o" text={e.org_id} />],
            ['Hash', <Copyable key="h" text={e.hash} />],
          ]}
        />
        {change && <JsonDiff before={change.before} after={change.after} beforeLabel="Before" afterLabel="After" same="Nothing differs." />}
        {Object.keys(rest).length > 0 && <JsonView label="Detail" value={rest} />}
      </div>
    </Dialog>
  );
}

function Verify() {
  const [open, setOpen] = useState(false);
  const check = useMutation({ mutationFn: () => body(api.GET('/audit/verify')) });
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
                  {v.ok ? (
                    <strong>The log is whole: {plural(v.entries, 'entry', 'entries')}, each fits the one before.</strong>
                  ) : (
                    <>
                      <strong>The log was altered, or the database was put back.</strong> {plural(v.verified, 'entry verifies', 'entries verify')}.
                    </>
                  )}
                </Notice>
                {v.breaks.length > 0 && (
                  <ul className="log">
                    {v.breaks.map((b) => (
                      <li key={`${b.recorded} ${b.reason}`}>
                        <Time at={b.found_at} />
                        <span>
                          {b.reason} (entry {b.recorded};{' '}
                          {b.acknowledged_at ? `acknowledged by ${b.acknowledged_by}: ${b.note}` : 'not acknowledged'})
                        </span>
                      </li>
                    ))}
                  </ul>
                )}
                <Facts facts={[['Entries', count(v.entries)], ['Verified', count(v.verified)], ['Last number', count(v.head_seq)]]} />
                <div className="stack-tight">
                  <span className="field-label">Hash of the last entry</span>
                  <CopyBox label="Head hash" text={v.head_hash} />
                  <span className="field-hint">The service compares it with checkpoints that it keeps outside of the database, so that a database that was put back is found out.</span>
                </div>
              </>
            )}
          </div>
        </Dialog>
      )}
    </>
  );
}
