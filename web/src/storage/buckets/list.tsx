/** All buckets that the caller may see: made in an object gateway, or taken in. */
import { useDeferredValue } from 'react';
import { useLocation } from 'wouter';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import type { Schema } from '../../ui/schema';
import { Choice, Table, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { Allowed, api, schemas, useMay, useSeesAll, type Bucket, type BucketSpec, type BucketState } from '../api';
import { bucketPath, useBackends } from '../links';
import { useRefresh } from '../live';
import { bucketStates, BucketStatus } from '../states';
import { useTenants } from '../tenants';
import { sizeField } from '../volumes/sizes';
import { useBucketActions } from './actions';

const columns: readonly Column<Bucket>[] = [
  { id: 'name', header: 'Bucket', cell: (b) => b.name, sort: (b) => b.name },
  { id: 'state', header: 'State', cell: (b) => <BucketStatus bucket={b} />, sort: (b) => b.state },
  { id: 'native', header: 'Name there', cell: (b) => b.bucket_name || <span className="muted">not known yet</span>, sort: (b) => b.bucket_name },
  { id: 'endpoint', header: 'Endpoint', cell: (b) => b.endpoint || <span className="muted">not known yet</span>, sort: (b) => b.endpoint },
  { id: 'origin', header: 'Made by', cell: (b) => <span className="nowrap">{b.adopted ? 'others' : 'the gateway'}</span>, sort: (b) => String(b.adopted) },
  { id: 'tenant', header: 'Tenant', cell: (b) => b.tenant_id, sort: (b) => b.tenant_id },
  { id: 'created', header: 'Created', cell: (b) => <Time at={b.created_at} />, sort: (b) => b.created_at, text: () => '' },
];

export function Buckets() {
  const seesAll = useSeesAll();
  // A bucket is taken in by who imports backups: an admin without a tenant.
  const takesIn = useMay()('ImportBackups');
  const [state, setState] = useParam<BucketState | ''>('state', '', bucketStates);
  const [backend, setBackend] = useParam('backend', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const [creating, setCreating] = useParam<'' | 'new' | 'known'>('create', '', ['new', 'known']);
  const backends = useBackends().data?.filter((b) => b.backend_type === 'ceph') ?? [];
  const actions = useBucketActions();
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(state && { state }), ...(backend && { backend }), ...(wantedTenant && { tenant: wantedTenant }) };
  const pages = usePages(['buckets', 'list', query], (cursor, signal) => page(api.GET('/buckets', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 3 });
  const create = (
    <Allowed operation="CreateBucket">
      <button type="button" className="btn btn-primary" onClick={() => setCreating('new')}>
        Create a bucket
      </button>
    </Allowed>
  );
  return (
    <Page
      title="Buckets"
      lead="Buckets of Ceph’s object gateway, and of any S3 service that were taken in. Their keys are never shown here."
      actions={
        <>
          {takesIn && (
            <button type="button" className="btn" onClick={() => setCreating('known')}>
              Take in a bucket…
            </button>
          )}
          {create}
        </>
      }
    >
      <Card flush>
        <Table
          label="Buckets"
          noun="bucket"
          columns={seesAll ? columns : columns.filter((c) => c.id !== 'tenant')}
          pages={pages}
          rowKey={(b) => b.id}
          href={bucketPath}
          actions={actions}
          tools={
            <>
              <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...bucketStates.map((s) => ({ value: s, label: s }))]} onChange={setState} />
              {backends.length > 1 && <Choice label="Backend" value={backend} options={[{ value: '', label: 'All backends' }, ...backends.map((b) => ({ value: b.name, label: b.name }))]} onChange={setBackend} />}
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
          empty={Object.keys(query).length > 0 ? { icon: 'search', title: 'No bucket matches' } : { icon: 'site', title: 'There are no buckets', text: 'A bucket keeps objects, such as the backups of volumes.', action: create }}
        />
      </Card>
      {creating === 'new' && (
        <Allowed operation="CreateBucket">
          <CreateBucket onClose={() => setCreating('')} />
        </Allowed>
      )}
      {creating === 'known' && takesIn && <TakeIn onClose={() => setCreating('')} />}
    </Page>
  );
}

/** Begins a job that makes or takes in a bucket, and leads to its page. */
function useMake(onClose: () => void): (input: BucketSpec) => Promise<void> {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  return async (input) => {
    const { resource } = await body(api.POST('/buckets', { body: input }));
    onClose();
    await refresh();
    navigate(bucketPath({ id: resource.bucket_id }));
  };
}

function useTenantField() {
  const seesAll = useSeesAll();
  const tenants = useTenants();
  return seesAll ? [{ name: 'tenant_id', label: 'Tenant', suggestions: tenants.map((t) => t.name), hint: 'Empty: it belongs to no tenant' }] : [];
}

function CreateBucket({ onClose }: { onClose: () => void }) {
  const make = useMake(onClose);
  const tenant = useTenantField();
  const backends = useBackends().data?.filter((b) => b.backend_type === 'ceph') ?? [];
  return (
    <FormDialog<BucketSpec>
      title="Create a bucket"
      schema={schemas.CreateBucket}
      fields={[
        { name: 'name', label: 'Name', hint: 'Unique within its tenant. The object gateway adds the end of its ID' },
        { name: 'backend_id', label: 'Backend', options: [{ value: '', label: 'the one that has buckets' }, ...backends.map((b) => ({ value: b.id, label: b.name }))], hint: 'One whose cluster has an object gateway' },
        sizeField('max_size', 'Size at most', { hint: 'No limit, when empty', show: () => '' }),
        { name: 'max_objects', label: 'Objects at most', hint: 'No limit, when empty', show: () => '' },
        { name: 'versioning', label: 'Versioning', hint: 'Keep what is overwritten or deleted' },
        ...tenant,
      ]}
      action="Create the bucket"
      onClose={onClose}
      onSubmit={make}
    />
  );
}

const takeInSchema: Schema = { ...schemas.CreateBucket, required: ['name', 'connection_ref'] };

function TakeIn({ onClose }: { onClose: () => void }) {
  const make = useMake(onClose);
  const tenant = useTenantField();
  return (
    <FormDialog<BucketSpec>
      title="Take in a bucket"
      schema={takeInSchema}
      fields={[
        { name: 'connection_ref', label: 'Entry', hint: 'Of the gateway’s setting s3-buckets, which says where the bucket is' },
        { name: 'name', label: 'Name', hint: 'What it is called here. Unique within its tenant' },
        ...tenant,
      ]}
      action="Take in the bucket"
      onClose={onClose}
      onSubmit={make}
    >
      <p>The bucket exists in an S3 service. Backups can be kept in it. It stays there when the gateway forgets it.</p>
    </FormDialog>
  );
}
