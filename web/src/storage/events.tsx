/** What happened lately: changes, jobs and alerts in one list, which follows the newest. */
import { useDeferredValue, type ReactNode } from 'react';
import { Link } from 'wouter';
import { useParam } from '../ui/address';
import { page } from '../ui/client';
import { Card } from '../ui/facts';
import { Page } from '../ui/page';
import { usePages, type Pages } from '../ui/paging';
import { Status, type Tone } from '../ui/status';
import { Choice, Table, type Column } from '../ui/table';
import { DateTime } from '../ui/time';
import { api, useSeesAll, type Event, type EventType } from './api';
import { jobPath, resourcePath } from './links';
import { useLive } from './live';
import { resourceName, type Names } from './names';

const types: readonly EventType[] = ['audit', 'job', 'alert'];
const typeTexts: Record<EventType, string> = { audit: 'changes', job: 'jobs', alert: 'alerts' };

const tones: Record<string, Tone> = { 'job.succeeded': 'ok', 'job.failed': 'bad', 'alert.opened': 'warn', 'alert.resolved': 'ok' };

/** The page of the job or of the alerts that an event tells of. The id of an event begins with its type. */
export function eventPath(e: Pick<Event, 'id' | 'type'>): string | undefined {
  if (e.type === 'alert') return '/alerts?state=all';
  const [, job] = /^job-(.+)$/.exec(e.id) ?? [];
  return job === undefined ? undefined : jobPath({ id: job });
}

/** What happened. The end of a job, and what an alert does, are shown as states. */
function Kind({ event: e }: { event: Event }) {
  const path = eventPath(e);
  const [, outcome = e.kind] = e.kind.split('.');
  return path ? (
    <span className="nowrap">
      <Link href={path}>{e.type}</Link> <Status tone={tones[e.kind] ?? 'idle'}>{outcome}</Status>
    </span>
  ) : (
    e.kind
  );
}

/** What an event is about. Alerts say it in their message. */
function About({ event: e, names }: { event: Event; names: Names }) {
  if (e.resource_id === '' || e.type === 'alert') return null;
  // What was never seen here may be gone.
  const path = names.has(e.resource_id) ? resourcePath(e.resource_type, e.resource_id) : undefined;
  const name = resourceName({ type: e.resource_type.replaceAll('.', ' '), id: e.resource_id }, names);
  return <span className="nowrap">{path ? <Link href={path}>{name}</Link> : name}</span>;
}

const columnsWith = (names: Names): readonly Column<Event>[] => [
  { id: 'kind', header: 'Event', cell: (e) => <Kind event={e} />, text: (e) => e.kind },
  { id: 'at', header: 'Time', cell: (e) => <DateTime at={e.at} /> },
  { id: 'message', header: 'Message', cell: (e) => <span className="wide-cell">{e.message}</span>, text: (e) => e.message },
  { id: 'about', header: 'About', cell: (e) => <About event={e} names={names} />, text: (e) => resourceName({ type: e.resource_type, id: e.resource_id }, names) },
  { id: 'actor', header: 'Actor', cell: (e) => e.actor, text: (e) => e.actor },
  { id: 'tenant', header: 'Tenant', cell: (e) => e.tenant_id, text: (e) => e.tenant_id },
];

export function EventTable({ label, pages, at = '', tools }: { label: string; pages: Pages<Event>; at?: string; tools?: ReactNode }) {
  const seesAll = useSeesAll();
  const columns = columnsWith(useLive().names);
  return (
    <Table
      at={at}
      label={label}
      noun="event"
      columns={seesAll ? columns : columns.filter((c) => c.id !== 'tenant')}
      pages={pages}
      rowKey={(e) => `${e.type} ${e.id}`}
      tools={tools}
      empty={{ icon: 'event', title: 'No event matches', text: 'Changes, jobs that end and alerts are events.' }}
    />
  );
}

export function Events() {
  const seesAll = useSeesAll();
  const [type, setType] = useParam<EventType | ''>('type', '', types);
  const [resource, setResource] = useParam('resource', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const wantedResource = useDeferredValue(resource.trim());
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(type && { type }), ...(wantedResource && { resource: wantedResource }), ...(wantedTenant && { tenant: wantedTenant }) };
  const pages = usePages(['events', 'list', query], (cursor, signal) => page(api.GET('/events', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Page title="Events" lead="What happened lately, newest first. The list follows by itself.">
      <Card flush>
        <EventTable
          label="Events"
          pages={pages}
          tools={
            <>
              <Choice label="Type" value={type} options={[{ value: '', label: 'All types' }, ...types.map((t) => ({ value: t, label: typeTexts[t] }))]} onChange={setType} />
              <input className="input narrow" aria-label="About the ID" placeholder="About the ID" maxLength={128} value={resource} onChange={(e) => setResource(e.target.value)} />
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
        />
      </Card>
    </Page>
  );
}
