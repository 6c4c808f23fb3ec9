/** The audit log: who changed what, with filters, and the verification of its chain. */
import { useDeferredValue } from 'react';
import actions from '../api/storage.audit.gen.json';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { Copyable } from '../ui/copy';
import { Card } from '../ui/facts';
import { Form } from '../ui/form';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import type { Schema } from '../ui/schema';
import { Status } from '../ui/status';
import { Choice, Table, useServerList, type Column } from '../ui/table';
import { DateTime } from '../ui/time';
import { toast } from '../ui/toast';
import { VerifyAudit, type Verification } from '../ui/verify';
import { Allowed, api, schemas, type AuditEntry } from './api';

const columns: readonly Column<AuditEntry>[] = [
  { id: 'action', header: 'Action', cell: (e) => e.action, text: (e) => e.action },
  { id: 'time', header: 'Time', cell: (e) => <DateTime at={e.time} /> },
  { id: 'actor', header: 'Actor', cell: (e) => e.actor },
  { id: 'result', header: 'Result', cell: (e) => <Status tone={e.result === 'ok' ? 'ok' : 'bad'}>{e.result}</Status> },
  { id: 'message', header: 'Message', cell: (e) => e.message },
  { id: 'tenant', header: 'Tenant', cell: (e) => e.tenant },
  { id: 'target', header: 'Target', cell: (e) => (e.target ? <Copyable text={e.target} /> : null), hidden: true },
  { id: 'seq', header: 'Number', cell: (e) => count(e.seq), end: true, hidden: true },
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
  const pages = usePages(['audit', query], (cursor, signal) => page(api.GET('/audit', { params: { query: { cursor, ...query } }, signal })));
  return (
    <Page
      title="Audit log"
      lead="Who changed what, and who tried, newest first. Entries are chained, so that none can be altered or removed unseen."
      actions={
        <Allowed operation="VerifyAudit">
          <VerifyAudit verify={() => body(api.GET('/audit/verify'))}>{(v, again) => <Acknowledge result={v} onDone={again} />}</VerifyAudit>
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
          server={{ search: 'Text anywhere', sort: [] }}
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

const noteSchema: Schema = { ...schemas.AcknowledgeAudit, required: ['note'] };

/** Says why the log broke, which ends the alert about it. */
function Acknowledge({ result, onDone }: { result: Verification; onDone: () => void }) {
  const open = result.breaks.filter((b) => !b.acknowledged_at);
  const through = Math.max(0, ...open.map((b) => b.recorded));
  if (through === 0) return null;
  return (
    <Allowed operation="AcknowledgeAudit">
      <Form<{ note: string }>
        schema={noteSchema}
        fields={[{ name: 'note', label: 'Why it broke', hint: 'For those who read the log later', wide: true }]}
        action="Acknowledge the break"
        onSubmit={async ({ note }) => {
          await api.POST('/audit/acknowledge', { body: { through, note } });
          toast('The break is acknowledged.');
          onDone();
        }}
      />
    </Allowed>
  );
}
