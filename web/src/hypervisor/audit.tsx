/** The audit log of this host. */
import { page } from '../ui/client';
import { Copyable } from '../ui/copy';
import { Card } from '../ui/facts';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status } from '../ui/status';
import { Table, useServerList, type Column } from '../ui/table';
import { DateTime } from '../ui/time';
import { api, type AuditEntry } from './api';

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

export function Audit() {
  const { q } = useServerList();
  const query = q ? { q } : {};
  const pages = usePages(['audit', query], (cursor, signal) => page(api.GET('/v1/audit', { params: { query: { cursor, ...query } }, signal })));
  return (
    <Page title="Audit log" lead="Who changed what on this host, and who tried, newest first.">
      <Card flush>
        <Table label="Audit log" noun="entry" nouns="entries" columns={columns} pages={pages} rowKey={(e) => String(e.seq)} server={{ search: 'Text anywhere' }} empty={{ icon: 'audit', title: 'Nothing has been changed yet' }} />
      </Card>
    </Page>
  );
}
