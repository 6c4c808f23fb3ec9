/** All routes in the caller's scope. */
import { useState } from 'react';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Choice, sortFor, Table, useServerList, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { Allowed, api, type Route } from '../api';
import { SiteLink } from '../links';
import { routeFails, routeState, RouteState } from '../states';
import { useRouteActions } from './actions';
import { RouteDialog } from './form';

const columns: Column<Route>[] = [
  { id: 'name', header: 'Name', cell: (r) => r.name, sort: (r) => r.name },
  { id: 'enabled', header: 'Status', cell: (r) => <RouteState route={r} />, sort: routeState },
  {
    id: 'error',
    header: 'Fails with',
    cell: (r) => routeFails(r) && <span className="clip" title={r.delivery.last_error}>{r.delivery.last_error}</span>,
    text: (r) => (routeFails(r) ? r.delivery.last_error : ''),
  },
  { id: 'topic', header: 'Topic', cell: (r) => <code>{r.topic}</code>, sort: (r) => r.topic },
  { id: 'target', header: 'Target', cell: (r) => <span className="clip" title={r.target_url}>{r.target_url}</span>, sort: (r) => r.target_url },
  { id: 'site', header: 'Site', cell: (r) => <SiteLink id={r.site_id} none="all sites" />, text: (r) => r.site_id || 'all sites' },
  { id: 'retries', header: 'Retries', cell: (r) => r.retry_max, sort: (r) => r.retry_max, end: true, hidden: true },
  { id: 'changed', header: 'Changed', cell: (r) => <Time at={r.updated_at} />, sort: (r) => r.updated_at, text: () => '' },
];

const sorts = { name: 'name', changed: 'updated_at' } as const;

export function Routes() {
  const [status, setStatus] = useParam<'' | 'enabled' | 'disabled' | 'failing'>('status', '', ['enabled', 'disabled', 'failing']);
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const [creating, setCreating] = useState(false);
  const { actions, bulk, dialog } = useRouteActions();
  const query = { ...(status && { status }), ...(q && { q }), ...(sort && { sort }) };
  const pages = usePages(['routes', 'list', query], (cursor, signal) => page(api.GET('/routes', { params: { query: { cursor, ...query } }, signal })));
  const create = (
    <Allowed operation="CreateRoute">
      <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
        Create a route
      </button>
    </Allowed>
  );
  return (
    <Page title="Routes" lead="Where events go. A route delivers those whose topic matches to an HTTP target, at least once and in order for each site." actions={create}>
      <Card flush>
        <Table
          label="Routes"
          noun="route"
          columns={columns}
          pages={pages}
          rowKey={(r) => r.id}
          href={(r) => `/routes/${encodeURIComponent(r.id)}`}
          actions={actions}
          bulk={bulk}
          server={{ search: 'Name, topic, target or ID', sort: Object.keys(sorts) }}
          tools={
            <Choice
              label="Status"
              value={status}
              options={[
                { value: '', label: 'Any status' },
                { value: 'enabled', label: 'Enabled' },
                { value: 'disabled', label: 'Disabled' },
                { value: 'failing', label: 'Failing: with an alert' },
              ]}
              onChange={setStatus}
            />
          }
          empty={status ? { icon: 'route', title: `No route is ${status}` } : { icon: 'route', title: 'No routes yet', text: 'Without a route events are kept, but delivered nowhere.', action: create }}
        />
      </Card>
      {creating && <RouteDialog onClose={() => setCreating(false)} />}
      {dialog}
    </Page>
  );
}
