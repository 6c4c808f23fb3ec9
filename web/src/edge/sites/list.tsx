/** All sites in the caller's scope. */
import { useState } from 'react';
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card, Tags } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Choice, sortFor, Table, useServerList, type Column } from '../../ui/table';
import { EndTime, Time } from '../../ui/time';
import { Allowed, api, type Site } from '../api';
import { Id } from '../links';
import { SiteState } from '../states';
import { EnrollDialog } from './enroll';
import { useSiteActions } from './actions';

type StatusFilter = '' | Site['status'];

const columns: Column<Site>[] = [
  { id: 'name', header: 'Name', cell: (s) => s.name, sort: (s) => s.name },
  { id: 'status', header: 'Status', cell: (s) => <SiteState status={s.status} />, sort: (s) => s.status },
  { id: 'seen', header: 'Last seen', cell: (s) => <Time at={s.last_seen_at} />, sort: (s) => s.last_seen_at, text: () => '' },
  { id: 'labels', header: 'Labels', cell: (s) => <Tags labels={s.labels} />, text: (s) => Object.entries(s.labels).map((l) => l.join('=')).join(' ') },
  { id: 'version', header: 'Agent', cell: (s) => s.version || <span className="muted">unknown</span>, sort: (s) => s.version },
  { id: 'certificate', header: 'Certificate ends', cell: (s) => <EndTime at={s.certificate?.not_after} never="none" />, sort: (s) => s.certificate?.not_after, text: () => '' },
  { id: 'enrolled', header: 'Enrolled', cell: (s) => <Time at={s.enrolled_at} />, sort: (s) => s.enrolled_at, text: () => '', hidden: true },
  { id: 'org', header: 'Org', cell: (s) => (s.org_id ? <Id id={s.org_id} /> : <span className="muted">none</span>), sort: (s) => s.org_id, hidden: true },
  { id: 'id', header: 'ID', cell: (s) => <Id id={s.id} />, text: (s) => s.id, hidden: true },
];

const sorts = { name: 'name', status: 'status', seen: 'last_seen_at' } as const;

export function Sites() {
  const [status, setStatus] = useParam<StatusFilter>('status', '', ['online', 'offline', 'revoked']);
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const [enrolling, setEnrolling] = useState(false);
  const { actions, bulk, dialog } = useSiteActions();
  const query = { ...(status && { status }), ...(q && { q }), ...(sort && { sort }) };
  const pages = usePages(['sites', 'list', query], (cursor, signal) => page(api.GET('/sites', { params: { query: { cursor, ...query } }, signal })));
  const enroll = (
    <Allowed operation="CreateEnrollmentToken">
      <button type="button" className="btn btn-primary" onClick={() => setEnrolling(true)}>
        Enroll a site
      </button>
    </Allowed>
  );
  return (
    <Page
      title="Sites"
      lead="Places that run an agent. A site is online while its agent sends heartbeats."
      actions={
        <>
          <Allowed operation="ListEnrollmentTokens">
            <Link href="/sites/tokens" className="btn">
              Enrollment tokens
            </Link>
          </Allowed>
          {enroll}
        </>
      }
    >
      <Card flush>
        <Table
          label="Sites"
          noun="site"
          columns={columns}
          pages={pages}
          rowKey={(s) => s.id}
          href={(s) => `/sites/${encodeURIComponent(s.id)}`}
          actions={actions}
          bulk={bulk}
          server={{ search: 'Name, label or ID', sort: Object.keys(sorts) }}
          tools={
            <Choice
              label="Status"
              value={status}
              options={[
                { value: '', label: 'Any status' },
                { value: 'online', label: 'Online' },
                { value: 'offline', label: 'Offline' },
                { value: 'revoked', label: 'Revoked' },
              ]}
              onChange={setStatus}
            />
          }
          empty={status ? { icon: 'site', title: `No site is ${status}` } : { icon: 'site', title: 'No sites yet', text: 'Enroll the first: you get a command to run at the site.', action: enroll }}
        />
      </Card>
      {enrolling && <EnrollDialog onClose={() => setEnrolling(false)} />}
      {dialog}
    </Page>
  );
}
