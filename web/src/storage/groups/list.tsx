/** Groups of volumes, whose snapshots are of one moment. */
import { useQuery } from '@tanstack/react-query';
import { useDeferredValue } from 'react';
import { useLocation } from 'wouter';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Choice, Table, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { Allowed, api, pageLimit, schemas, useSeesAll, type Backend, type Cluster, type Volume, type VolumeGroup, type VolumeGroupSpec } from '../api';
import { groupPath, useBackendNames, useBackends, useClusters } from '../links';
import { useLive, useRefresh } from '../live';
import type { Names } from '../names';
import { useGroupActions } from './actions';

const columnsWith = (backend: (cluster: string) => string | undefined, names: Names): readonly Column<VolumeGroup>[] => [
  { id: 'name', header: 'Group', cell: (g) => g.name, sort: (g) => g.name },
  {
    id: 'volumes',
    header: 'Volumes',
    cell: (g) => `${plural(g.volume_ids.length, 'volume')}: ${g.volume_ids.map((id) => names.get(id) ?? 'one that is not known').join(', ')}`,
    sort: (g) => g.volume_ids.length,
    text: (g) => g.volume_ids.map((id) => names.get(id) ?? '').join(' '),
  },
  { id: 'backend', header: 'Backend', cell: (g) => backend(g.cluster_id) ?? <span className="muted">not known</span>, sort: (g) => backend(g.cluster_id) ?? '' },
  { id: 'tenant', header: 'Tenant', cell: (g) => g.tenant_id, sort: (g) => g.tenant_id },
  { id: 'created', header: 'Created', cell: (g) => <Time at={g.created_at} />, sort: (g) => g.created_at, text: () => '' },
];

export function Groups() {
  const seesAll = useSeesAll();
  const [cluster, setCluster] = useParam('cluster', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const [creating, setCreating] = useParam<'' | '1'>('create', '', ['1']);
  const clusters = useClusters().data ?? [];
  const backend = useBackendNames();
  const { names } = useLive();
  const { actions, dialog } = useGroupActions();
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(cluster && { cluster }), ...(wantedTenant && { tenant: wantedTenant }) };
  const pages = usePages(['groups', 'list', query], (cursor, signal) => page(api.GET('/volume-groups', { params: { query: { ...query, cursor } }, signal })));
  const create = (
    <Allowed operation="CreateVolumeGroup">
      <button type="button" className="btn btn-primary" onClick={() => setCreating('1')}>
        Create a group
      </button>
    </Allowed>
  );
  return (
    <Page title="Groups" lead="The snapshots of a group are of all its volumes at the same moment." actions={create}>
      <Card flush>
        <Table
          label="Groups"
          noun="group"
          columns={columnsWith(backend, names).filter((c) => (seesAll || c.id !== 'tenant') && (clusters.length > 1 || c.id !== 'backend'))}
          pages={pages}
          rowKey={(g) => g.id}
          href={groupPath}
          actions={actions}
          tools={
            <>
              {clusters.length > 1 && <Choice label="Backend" value={cluster} options={[{ value: '', label: 'All backends' }, ...clusters.map((c) => ({ value: c.id, label: backend(c.id) ?? c.name }))]} onChange={setCluster} />}
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
          empty={
            Object.keys(query).length > 0
              ? { icon: 'search', title: 'No group matches' }
              : { icon: 'peers', title: 'There are no groups', text: 'A database whose files are on several volumes needs snapshots of all of them at the same moment. Groups are of volumes in Ceph.', action: create }
          }
        />
      </Card>
      {creating === '1' && (
        <Allowed operation="CreateVolumeGroup">
          <CreateGroup onClose={() => setCreating('')} />
        </Allowed>
      )}
      {dialog}
    </Page>
  );
}

/** The volumes that may be in a group: those that the gateway made in Ceph. */
export function groupable(volumes: readonly Volume[], clusters: readonly Cluster[], backends: readonly Backend[]): Volume[] {
  const ceph = new Set(clusters.filter((c) => backends.some((b) => b.id === c.backend_id && b.backend_type === 'ceph')).map((c) => c.id));
  return volumes.filter((v) => v.managed && v.kind === 'block' && ceph.has(v.cluster_id) && v.state !== 'deleting' && v.state !== 'missing');
}

function CreateGroup({ onClose }: { onClose: () => void }) {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const clusters = useClusters().data;
  const backends = useBackends().data;
  const volumes = useQuery({ queryKey: ['volumes', 'groupable'], queryFn: ({ signal }) => body(api.GET('/volumes', { params: { query: { limit: pageLimit, kind: 'block' } }, signal })) }).data;
  // The form knows its choices from the beginning.
  if (!volumes || !clusters || !backends) return null;
  const offered = groupable(volumes, clusters, backends);
  return (
    <FormDialog<VolumeGroupSpec>
      title="Create a group"
      schema={schemas.CreateVolumeGroup}
      fields={[
        { name: 'name', label: 'Name', hint: 'Unique within its tenant' },
        {
          name: 'volume_ids',
          label: 'Volumes',
          kind: 'several',
          options: offered.map((v) => ({ value: v.id, label: `${v.name}, ${bytes(v.size_bytes)}${v.tenant_id ? `, of ${v.tenant_id}` : ''}` })),
          hint: 'In one cluster, of one tenant, and in no other group',
        },
      ]}
      warning={() => (offered.length === 0 ? 'There is no volume that may be in a group. Groups are of volumes in Ceph.' : undefined)}
      action="Create the group"
      onClose={onClose}
      onSubmit={async (input) => {
        const { id } = await body(api.POST('/volume-groups', { body: input }));
        onClose();
        await refresh();
        navigate(groupPath({ id }));
      }}
    />
  );
}
