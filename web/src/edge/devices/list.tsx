/** All devices in the caller's scope. */
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { words } from '../../ui/status';
import { Choice, sortFor, Table, useServerList, valuesOf } from '../../ui/table';
import { api, type OTA } from '../api';
import { devicePath } from '../links';
import { failedEnds } from '../notes';
import { SiteChoice } from '../site-choice';
import { useDeviceActions } from './actions';
import { deviceColumns } from './columns';

const sorts = { device: 'device_id', name: 'name', seen: 'last_seen_at' } as const;

type UpdateState = OTA['status']['state'];

/** States of updates, alone and together. The overview counts all failures as one. */
const updates: { value: string; label: string }[] = [
  { value: '', label: 'Any update' },
  { value: 'pending,downloading,downloaded,installing,rebooting,verifying,rolling_back', label: 'Update under way' },
  { value: 'succeeded,already_installed', label: 'Update succeeded' },
  { value: failedEnds.join(), label: 'Update failed, in any way' },
  ...failedEnds.map((state) => ({ value: state, label: `Update ${words(state)}` })),
];

export function Devices() {
  const [update, setUpdate] = useParam('update', '', updates.map((u) => u.value));
  const [site, setSite] = useParam('site', '');
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const { actions, bulk, dialog } = useDeviceActions();
  const query = { ...(site && { site_id: site }), ...(update && { ota_state: valuesOf<UpdateState>(update) }), ...(q && { q }), ...(sort && { sort }) };
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
          tools={
            <>
              <Choice label="Update" value={update} options={updates} onChange={setUpdate} />
              <SiteChoice value={site} onChange={setSite} />
            </>
          }
          empty={update ? { icon: 'device', title: 'No device has such an update' } : { icon: 'device', title: site ? 'This site has no devices' : 'No devices yet', text: 'Devices appear here when a site’s agent registers them.' }}
        />
      </Card>
      {dialog}
    </Page>
  );
}
