/** All devices in the caller's scope. */
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { sortFor, Table, useServerList } from '../../ui/table';
import { api } from '../api';
import { devicePath } from '../links';
import { SiteChoice } from '../site-choice';
import { useDeviceActions } from './actions';
import { deviceColumns } from './columns';

const sorts = { device: 'device_id', name: 'name', seen: 'last_seen_at' } as const;

export function Devices() {
  const [site, setSite] = useParam('site', '');
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const { actions, bulk, dialog } = useDeviceActions();
  const query = { ...(site && { site_id: site }), ...(q && { q }), ...(sort && { sort }) };
  const pages = usePages(['devices', 'list', query], (cursor, signal) => page(api.GET('/devices', { params: { query: { cursor, ...query } }, signal })));
  return (
    <Page title="Devices" lead="What the sites look after. Each device has a twin: what it should be, and what it says it is.">
      <Card flush>
        <Table
          label="Devices"
          noun="device"
          columns={deviceColumns}
          pages={pages}
          rowKey={(d) => d.device_id}
          href={(d) => devicePath(d.device_id)}
          actions={actions}
          bulk={bulk}
          server={{ search: 'ID, name, model or label', sort: Object.keys(sorts) }}
          tools={<SiteChoice value={site} onChange={setSite} />}
          empty={{ icon: 'device', title: site ? 'This site has no devices' : 'No devices yet', text: 'Devices appear here when a site’s agent registers them.' }}
        />
      </Card>
      {dialog}
    </Page>
  );
}
