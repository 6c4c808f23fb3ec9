/** All VMs that the caller may see. */
import { useDeferredValue, useState } from 'react';
import { useLocation } from 'wouter';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Choice, sortFor, Table, useServerList } from '../../ui/table';
import { api, useMay, type State } from '../api';
import { states } from '../states';
import { useVMActions } from './actions';
import { vmColumns } from './columns';
import { CreateVM } from './create';

const sorts = { name: 'name', state: 'state', created: 'created_at' } as const;

export function VMs() {
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const [, navigate] = useLocation();
  const admin = useMay()('ListAudit');
  const [state, setState] = useParam<State | ''>('state', '', states);
  const [tenant, setTenant] = useParam('tenant', '');
  const [label, setLabel] = useParam('label', '');
  const [creating, setCreating] = useState(false);
  const { actions, bulk, dialog } = useVMActions();
  const wantedTenant = useDeferredValue(tenant.trim());
  const wantedLabel = useDeferredValue(label.trim());
  const query = { ...(state && { state }), ...(wantedTenant && { tenant: wantedTenant }), ...(/^[^=]+=/.test(wantedLabel) && { label: [wantedLabel] }), ...(q && { q }) };
  const pages = usePages(['vms', 'list', query, sort], (cursor, signal) => page(api.GET('/v1/vms', { params: { query: { cursor, ...query, ...(sort && { sort }) } }, signal })), { refreshSeconds: 3 });
  const create = (
    <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
      Create a VM
    </button>
  );
  return (
    <Page title="VMs" lead="Virtual machines of this host." actions={create}>
      <Card flush>
        <Table
          label="VMs"
          noun="VM"
          columns={vmColumns}
          pages={pages}
          rowKey={(v) => v.id}
          href={(v) => `/vms/${v.id}`}
          actions={actions}
          bulk={bulk}
          server={{ search: 'Name, image, address, label or ID', sort: Object.keys(sorts) }}
          tools={
            <>
              <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...states.map((s) => ({ value: s, label: s }))]} onChange={setState} />
              {admin && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" value={tenant} onChange={(e) => setTenant(e.target.value)} />}
              <input className="input narrow" aria-label="Label, as key=value" placeholder="Label: key=value" value={label} onChange={(e) => setLabel(e.target.value)} />
            </>
          }
          empty={Object.keys(query).length ? { icon: 'search', title: 'No VM matches' } : { icon: 'node', title: 'There are no VMs', text: 'Create one from an image of the catalog, or from a path on the host.', action: create }}
        />
      </Card>
      {creating && <CreateVM onClose={() => setCreating(false)} onMade={(vm) => navigate(`/vms/${vm.id}`)} />}
      {dialog}
    </Page>
  );
}
