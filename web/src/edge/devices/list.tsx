/** All devices in the caller's scope. */
import { useState } from 'react';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Table } from '../../ui/table';
import { api } from '../api';
import { devicePath } from '../links';
import { SiteChoice } from '../site-choice';
import { useDeviceActions } from './actions';
import { deviceColumns } from './columns';

export function Devices() {
  const [site, setSite] = useState('');
  const { actions, dialog } = useDeviceActions();
  const pages = usePages(['devices', 'list', site], (cursor, signal) => page(api.GET('/devices', { params: { query: { cursor, ...(site && { site_id: site }) } }, signal })));
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
          tools={<SiteChoice value={site} onChange={setSite} />}
          empty={{ icon: 'device', title: site ? 'This site has no devices' : 'No devices yet', text: 'Devices appear here when a site’s agent registers them.' }}
        />
      </Card>
      {dialog}
    </Page>
  );
}
