/** All volumes that the caller may see. The service searches and pages. */
import { useDeferredValue } from 'react';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Choice, Table, useServerList } from '../../ui/table';
import { Allowed, api, useSeesAll, type VolumeKind, type VolumeState } from '../api';
import { useBackends, volumePath } from '../links';
import { volumeStates, volumeText } from '../states';
import { useVolumeActions } from './actions';
import { volumeColumns } from './columns';
import { CreateVolume } from './create';

const kinds: readonly VolumeKind[] = ['block', 'filesystem'];

export function Volumes() {
  const { q } = useServerList();
  const seesAll = useSeesAll();
  const [state, setState] = useParam<VolumeState | ''>('state', '', volumeStates);
  const [kind, setKind] = useParam<VolumeKind | ''>('kind', '', kinds);
  const [backend, setBackend] = useParam('backend', '');
  const [tenant, setTenant] = useParam('tenant', '');
  // In the address, so that the overview leads here.
  const [creating, setCreating] = useParam<'' | '1'>('create', '', ['1']);
  const backends = useBackends().data;
  const { actions, bulk, dialog } = useVolumeActions();
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(state && { state }), ...(kind && { kind }), ...(backend && { backend }), ...(wantedTenant && { tenant: wantedTenant }), ...(q && { q }) };
  const pages = usePages(['volumes', 'list', query], (cursor, signal) => page(api.GET('/volumes', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 3 });
  const create = (
    <Allowed operation="CreateVolume">
      <button type="button" className="btn btn-primary" onClick={() => setCreating('1')}>
        Create a volume
      </button>
    </Allowed>
  );
  const filtered = Object.keys(query).length > 0;
  return (
    <Page title="Volumes" lead={seesAll ? 'Volumes of all tenants.' : 'Your volumes.'} actions={create}>
      <Card flush>
        <Table
          label="Volumes"
          noun="volume"
          columns={seesAll ? volumeColumns : volumeColumns.filter((c) => c.id !== 'tenant')}
          pages={pages}
          rowKey={(v) => v.id}
          href={volumePath}
          actions={actions}
          bulk={bulk}
          server={{ search: 'Name or ID', sort: [] }}
          tools={
            <>
              <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...volumeStates.map((s) => ({ value: s, label: volumeText(s) }))]} onChange={setState} />
              <Choice label="Kind" value={kind} options={[{ value: '', label: 'All kinds' }, ...kinds.map((k) => ({ value: k, label: k }))]} onChange={setKind} />
              {(backends?.length ?? 0) > 1 && <Choice label="Backend" value={backend} options={[{ value: '', label: 'All backends' }, ...(backends ?? []).map((b) => ({ value: b.name, label: b.name }))]} onChange={setBackend} />}
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
          empty={filtered ? { icon: 'search', title: 'No volume matches' } : { icon: 'deployment', title: 'There are no volumes', text: 'A volume is made by a policy, which says where it is and of which kind.', action: create }}
        />
      </Card>
      {creating === '1' && (
        <Allowed operation="CreateVolume">
          <CreateVolume onClose={() => setCreating('')} />
        </Allowed>
      )}
      {dialog}
    </Page>
  );
}
