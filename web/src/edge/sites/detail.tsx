/** A site: its state, deployments, devices and events. */
import { useQuery } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts, Tags } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Empty, Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Status, words } from '../../ui/status';
import { Table, useServerList, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { DateTime, duration, EndTime, Time, useNow } from '../../ui/time';
import { ActivityList } from '../activity-list';
import { api, type Alert, type Site } from '../api';
import { deploymentColumns } from '../deployments/columns';
import { deviceColumns } from '../devices/columns';
import { EventList } from '../event-list';
import { devicePath } from '../links';
import { SiteState } from '../states';
import { Trouble } from '../trouble';
import { useSiteActions } from './actions';

const above = [{ title: 'Sites', href: '/sites' }];

export function SiteDetail({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const { actions, dialog } = useSiteActions(() => navigate('/sites'));
  const site = useQuery({ queryKey: ['sites', 'one', id], queryFn: ({ signal }) => body(api.GET('/sites/{id}', { params: { path: { id } }, signal })), refetchInterval: 5_000 });
  if (!site.data) {
    return (
      <Page title="Site" above={above}>
        {site.error ? <Failure error={site.error} retry={() => void site.refetch()} /> : <p className="muted">Loading…</p>}
      </Page>
    );
  }
  const s = site.data;
  return (
    <Page
      title={s.name}
      above={above}
      badge={<SiteState status={s.status} />}
      actions={<Menu label={`Actions for ${s.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(s)} />}
    >
      <div className="stack">
        {s.status === 'revoked' && <Notice tone="idle">This site is revoked: its agent is shut out for good. What it had stays on record until the site is deleted.</Notice>}
        <Trouble of={{ site_id: id }} />
        <div className="grid">
          <Card title="Site">
            <Facts
              facts={[
                ['Last seen', <Time key="t" at={s.last_seen_at} />],
                ['Enrolled', <DateTime key="t" at={s.enrolled_at} />],
                ['Agent version', s.version || <span className="muted">unknown</span>],
                ['Labels', <Tags key="t" labels={s.labels} />],
                ['ID', <Copyable key="c" text={s.id} />],
                s.org_id !== '' && ['Org', <Copyable key="c" text={s.org_id} />],
              ]}
            />
          </Card>
          <Certificate site={s} />
        </div>
        <Tabs
          label="Of this site"
          inAddress
          tabs={[
            { id: 'devices', label: 'Devices', content: () => <SiteDevices id={id} /> },
            { id: 'deployments', label: 'Deployments', content: () => <SiteDeployments id={id} /> },
            { id: 'alerts', label: 'Alerts', content: () => <SiteAlerts id={id} /> },
            { id: 'activity', label: 'Activity', content: () => <SiteActivity id={id} /> },
            { id: 'events', label: 'Events', content: () => <Card flush><EventList site={id} /></Card> },
          ]}
        />
      </div>
      {dialog}
    </Page>
  );
}

const warnDays = 30;

function Certificate({ site }: { site: Site }) {
  const now = useNow();
  const certificate = site.certificate;
  if (!certificate) {
    return (
      <Card title="Certificate">
        <p className="muted">This site has no certificate: its agent asked for none.</p>
      </Card>
    );
  }
  const days = (Date.parse(certificate.not_after) - now) / 86_400_000;
  return (
    <Card title="Certificate">
      <div className="stack">
        <Facts
          facts={[
            ['Ends', <span key="d"><DateTime at={certificate.not_after} /> (<EndTime at={certificate.not_after} />)</span>],
            ['Serial', <Copyable key="c" text={certificate.serial} />],
          ]}
        />
        {days < 0 ? (
          <Notice tone="bad">The certificate has expired. The agent can renew it until 30 days after its end.</Notice>
        ) : (
          days < warnDays && <Notice tone="warn">The certificate ends soon. Agents renew by themselves after two thirds of its life; see whether this one is running.</Notice>
        )}
      </div>
    </Card>
  );
}

const alertColumns: Column<Alert>[] = [
  { id: 'message', header: 'Alert', cell: (a) => a.message, sort: (a) => a.message },
  { id: 'kind', header: 'Kind', cell: (a) => words(a.kind), sort: (a) => a.kind, text: (a) => words(a.kind) },
  { id: 'first', header: 'From', cell: (a) => <DateTime at={a.first_seen_at} />, sort: (a) => a.first_seen_at, text: () => '' },
  { id: 'resolved', header: 'To', cell: (a) => (a.resolved_at ? <DateTime at={a.resolved_at} /> : <Status tone="bad" icon="alert">firing</Status>), sort: (a) => a.resolved_at, text: () => '' },
  { id: 'lasted', header: 'Lasted', cell: (a) => <Lasted alert={a} />, sort: (a) => Date.parse(a.resolved_at ?? '') - Date.parse(a.first_seen_at), text: () => '', end: true },
];

function Lasted({ alert: a }: { alert: Alert }) {
  const now = useNow();
  return duration(((a.resolved_at ? Date.parse(a.resolved_at) : now) - Date.parse(a.first_seen_at)) / 1000);
}

/** Everything that was wrong with the site: when it was offline, and what failed at it. */
function SiteAlerts({ id }: { id: string }) {
  const pages = usePages(['alerts', 'list', 'of', id], (cursor, signal) => page(api.GET('/alerts', { params: { query: { cursor, status: 'all', site_id: id } }, signal })));
  return (
    <Card flush>
      <Table label="Alerts of the site" at="alerts." noun="alert" columns={alertColumns} pages={pages} rowKey={(a) => a.id} empty={{ icon: 'check', title: 'No alert so far', text: 'The site was never offline, and nothing failed at it.' }} />
    </Card>
  );
}

function SiteActivity({ id }: { id: string }) {
  const pages = usePages(['activity', 'list', id], (cursor, signal) => page(api.GET('/activity', { params: { query: { cursor, site_id: id } }, signal })), { refreshSeconds: 5 });
  if (!pages.rows) return <Card>{pages.error === undefined ? <span className="skeleton" /> : <Failure error={pages.error} retry={pages.refresh} />}</Card>;
  return (
    <Card flush>
      {pages.rows.length > 0 ? <ActivityList entries={pages.rows} /> : <Empty icon="activity" title="Nothing has happened here yet" />}
      {pages.hasMore && (
        <div className="table-foot">
          <button type="button" className="btn btn-small" disabled={pages.loadingMore} onClick={pages.loadMore}>
            {pages.loadingMore ? 'Loading…' : 'Load older'}
          </button>
        </div>
      )}
    </Card>
  );
}

function SiteDevices({ id }: { id: string }) {
  const { q } = useServerList('devices.');
  const query = { site_id: id, ...(q && { q }) };
  const pages = usePages(['devices', 'list', query], (cursor, signal) => page(api.GET('/devices', { params: { query: { cursor, ...query } }, signal })));
  return (
    <Card flush>
      <Table
        label="Devices of the site"
        at="devices."
        noun="device"
        columns={deviceColumns.filter((c) => c.id !== 'site')}
        pages={pages}
        rowKey={(d) => d.device_id}
        href={(d) => devicePath(d.device_id)}
        server={{ search: 'ID, name, model or label' }}
        empty={{ icon: 'device', title: 'No devices', text: 'The site’s agent registers the devices that it looks after.' }}
      />
    </Card>
  );
}

function SiteDeployments({ id }: { id: string }) {
  const { q } = useServerList('deployments.');
  const query = { site_id: id, ...(q && { q }) };
  const pages = usePages(['deployments', 'list', query], (cursor, signal) => page(api.GET('/deployments', { params: { query: { cursor, ...query } }, signal })));
  return (
    <Card flush>
      <Table
        label="Deployments of the site"
        at="deployments."
        noun="deployment"
        columns={deploymentColumns.filter((c) => c.id !== 'site')}
        pages={pages}
        rowKey={(d) => d.id}
        href={(d) => `/deployments/${encodeURIComponent(d.id)}`}
        server={{ search: 'Name, image, version or ID' }}
        empty={{ icon: 'deployment', title: 'Nothing is deployed here' }}
      />
    </Card>
  );
}
