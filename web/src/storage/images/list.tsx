/** The block images of Ceph by pool and name, as the command rbd knows them. */
import { useMutation } from '@tanstack/react-query';
import { useDeferredValue } from 'react';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { count } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { atField, reason } from '../../ui/problem';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { Choice, Table, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, schemas, useSeesAll, type RBDImage, type RBDImageSpec } from '../api';
import { imagePath, useBackendNames, usePools } from '../links';
import { useRefresh } from '../live';
import { bytesAt } from '../refused';
import { VolumeStatus } from '../states';
import { useTenants } from '../tenants';
import { Used } from '../volumes/columns';
import { sizeField } from '../volumes/sizes';
import { useImageActions, useOpenImage } from './actions';

/** The limits of an image. */
export const limitsText = (i: Pick<RBDImage, 'iops' | 'bps'>) => [i.iops > 0 && `${count(i.iops)} requests/s`, i.bps > 0 && `${bytes(i.bps)}/s`].filter(Boolean).join(', ') || 'none';

const columnsWith = (backend: (cluster: string) => string | undefined): readonly Column<RBDImage>[] => [
  { id: 'name', header: 'Image', cell: (i) => i.name, sort: (i) => i.name, text: (i) => `${i.pool}/${i.name}` },
  { id: 'pool', header: 'Pool', cell: (i) => i.pool, sort: (i) => i.pool },
  { id: 'backend', header: 'Backend', cell: (i) => backend(i.cluster_id) ?? <span className="muted">not known</span>, sort: (i) => backend(i.cluster_id) ?? '' },
  { id: 'state', header: 'State', cell: (i) => <VolumeStatus volume={i} />, sort: (i) => i.state },
  { id: 'size', header: 'Size', cell: (i) => <span className="nowrap">{bytes(i.size_bytes)}</span>, sort: (i) => i.size_bytes, text: () => '', end: true },
  { id: 'used', header: 'Used', cell: (i) => <span className="nowrap"><Used volume={i} /></span>, sort: (i) => i.used_bytes ?? -1, text: () => '', end: true },
  { id: 'parent', header: 'Parent', cell: (i) => i.parent || <span className="muted">none</span>, sort: (i) => i.parent },
  { id: 'limits', header: 'Limits', cell: limitsText, text: () => '', hidden: true },
  { id: 'managed', header: 'Made by', cell: (i) => <span className="nowrap">{i.managed ? 'the gateway' : 'others'}</span>, sort: (i) => String(i.managed) },
  { id: 'tenant', header: 'Tenant', cell: (i) => i.tenant_id, sort: (i) => i.tenant_id },
  { id: 'created', header: 'Created', cell: (i) => <Time at={i.created_at} />, sort: (i) => i.created_at, text: () => '', hidden: true },
];

export function Images() {
  const seesAll = useSeesAll();
  const [cluster, setCluster] = useParam('cluster', '');
  const [pool, setPool] = useParam('pool', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const [creating, setCreating] = useParam<'' | '1'>('create', '', ['1']);
  const pools = (usePools().data ?? []).filter((p) => p.kind === 'rbd');
  const backend = useBackendNames();
  const { actions, dialog } = useImageActions();
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(cluster && { cluster }), ...(pool && { pool }), ...(wantedTenant && { tenant: wantedTenant }) };
  const pages = usePages(['images', 'list', query], (cursor, signal) => page(api.GET('/rbd-images', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 3 });
  const clusters = [...new Set(pools.map((p) => p.cluster_id))];
  const create = (
    <Allowed operation="CreateRBDImage">
      <button type="button" className="btn btn-primary" onClick={() => setCreating('1')}>
        Create an image
      </button>
    </Allowed>
  );
  return (
    <Page
      title="Images"
      lead="Block images in Ceph, under the names that the command rbd shows."
      actions={
        <>
          <Allowed operation="RefreshRBDUsage">
            <CountUsage cluster={cluster} />
          </Allowed>
          {create}
        </>
      }
    >
      <Card flush>
        <Table
          label="Images"
          noun="image"
          columns={columnsWith(backend).filter((c) => (seesAll || c.id !== 'tenant') && (clusters.length > 1 || c.id !== 'backend'))}
          pages={pages}
          rowKey={(i) => i.id}
          href={imagePath}
          actions={actions}
          tools={
            <>
              {clusters.length > 1 && <Choice label="Backend" value={cluster} options={[{ value: '', label: 'All backends' }, ...clusters.map((c) => ({ value: c, label: backend(c) ?? c }))]} onChange={setCluster} />}
              <Choice
                label="Pool"
                value={pool}
                options={[{ value: '', label: 'All pools' }, ...[...new Set(pools.filter((p) => cluster === '' || p.cluster_id === cluster).map((p) => p.name))].map((p) => ({ value: p, label: p }))]}
                onChange={setPool}
              />
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
          empty={
            Object.keys(query).length > 0
              ? { icon: 'search', title: 'No image matches' }
              : { icon: 'deployment', title: 'There are no images', text: pools.length > 0 ? 'An image is a block device in a pool of Ceph, with a name of one’s own.' : 'Images are in Ceph. No backend has a pool for them.', action: pools.length > 0 && create }
          }
        />
      </Card>
      {creating === '1' && (
        <Allowed operation="CreateRBDImage">
          <CreateImage pool={pool} onClose={() => setCreating('')} />
        </Allowed>
      )}
      {dialog}
    </Page>
  );
}

function CountUsage({ cluster }: { cluster: string }) {
  const refresh = useRefresh();
  const begin = useMutation({
    mutationFn: () => body(api.POST('/rbd-usage/refresh', { params: { query: { ...(cluster && { cluster }) } } })),
    onSuccess: async () => {
      toast('What images use is being counted.');
      await refresh();
    },
    onError: (e) => toast(reason(e), 'bad'),
  });
  return (
    <button type="button" className="btn" disabled={begin.isPending} onClick={() => begin.mutate()}>
      Count usage
    </button>
  );
}

/** The pool of a new image, with its cluster. */
interface Input extends Omit<RBDImageSpec, 'pool'> {
  pool: string;
}

const createSchema: Schema = { ...schemas.CreateRBDImage, properties: { ...schemas.CreateRBDImage.properties, pool: { type: 'string', minLength: 1 } } };

function CreateImage({ pool: filtered, onClose }: { /** The pool whose images are listed, if it is only one. */ pool: string; onClose: () => void }) {
  const refresh = useRefresh();
  const open = useOpenImage();
  const seesAll = useSeesAll();
  const tenants = useTenants();
  const backend = useBackendNames();
  const pools = usePools().data?.filter((p) => p.kind === 'rbd' && !p.missing);
  // The form knows its choices from the beginning.
  if (!pools) return null;
  return (
    <FormDialog<Input>
      title="Create an image"
      schema={createSchema}
      fields={[
        { name: 'name', label: 'Name', hint: 'Unique in the pool' },
        sizeField('size_bytes', 'Size'),
        { name: 'pool', label: 'Pool', options: pools.map((p) => ({ value: p.id, label: `${p.name}, in ${backend(p.cluster_id) ?? 'a backend that is not known'}` })), hint: '' },
        ...(seesAll ? [{ name: 'tenant_id', label: 'Tenant', suggestions: tenants.map((t) => t.name), hint: 'Empty: it belongs to no tenant' }] : []),
      ]}
      values={{ pool: (pools.find((p) => p.name === filtered) ?? pools[0])?.id }}
      warning={() => (pools.length === 0 ? 'No backend has a pool for images.' : undefined)}
      action="Create the image"
      onClose={onClose}
      onSubmit={async (input) => {
        const pool = pools.find((p) => p.id === input.pool);
        const { resource } = await atField(body(api.POST('/rbd-images', { params: { query: { ...(pool && { cluster: pool.cluster_id }) } }, body: { ...input, pool: pool?.name ?? input.pool } })), bytesAt('size_bytes'));
        onClose();
        await refresh();
        open(resource);
      }}
    />
  );
}
