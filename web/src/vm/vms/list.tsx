/** All VMs that the caller may see. The service searches, sorts and pages. */
import { useDeferredValue } from 'react';
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Choice, sortFor, Table, useServerList } from '../../ui/table';
import { Allowed, api, useSeesAll, type State } from '../api';
import { vmPath } from '../links';
import { loadPart } from '../offset';
import { states } from '../states';
import { useVMActions } from './actions';
import { vmColumns } from './columns';

const sorts = { name: 'name', state: 'state', created: 'created' } as const;

export function VMs() {
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const seesAll = useSeesAll();
  const [state, setState] = useParam<State | ''>('state', '', states);
  const [tag, setTag] = useParam('tag', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const { actions, bulk, dialog } = useVMActions();
  const wantedTag = useDeferredValue(tag.trim());
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(state && { state }), ...(wantedTag && { tag: wantedTag }), ...(wantedTenant && { tenant: wantedTenant }), ...(q && { q }) };
  const pages = usePages(
    ['vms', 'list', query, sort],
    (cursor, signal) => loadPart(cursor, (part) => body(api.GET('/api/vms', { params: { query: { ...query, ...(sort && { sort }), ...part } }, signal }))),
    { refreshSeconds: 3 },
  );
  const create = (
    <Allowed operation="CreateVM">
      <Link href="/new-vm" className="btn btn-primary">
        Create a VM
      </Link>
    </Allowed>
  );
  const filtered = Object.keys(query).length > 0;
  return (
    <Page title="VMs" lead={seesAll ? 'Virtual machines of all tenants.' : 'Your virtual machines.'} actions={create}>
      <Card flush>
        <Table
          label="VMs"
          noun="VM"
          columns={seesAll ? vmColumns : vmColumns.filter((c) => c.id !== 'tenant' && c.id !== 'node')}
          pages={pages}
          rowKey={(v) => v.id}
          href={vmPath}
          actions={actions}
          bulk={bulk}
          server={{ search: 'Name, image, address, tag, label or ID', sort: Object.keys(sorts) }}
          tools={
            <>
              <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...states.map((s) => ({ value: s, label: s }))]} onChange={setState} />
              <input className="input narrow" aria-label="Tag, exactly" placeholder="Tag, exactly" maxLength={128} value={tag} onChange={(e) => setTag(e.target.value)} />
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
          empty={filtered ? { icon: 'search', title: 'No VM matches' } : { icon: 'node', title: 'There are no VMs', text: 'Create one from an image of the catalog.', action: create }}
        />
      </Card>
      {dialog}
    </Page>
  );
}
