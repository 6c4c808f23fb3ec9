/** Tenants: who owns volumes, and how much of everything. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Dialog } from '../ui/dialog';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { count, plural } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Limits } from '../ui/progress';
import type { Schema } from '../ui/schema';
import { bytes } from '../ui/size';
import { Table, type Column } from '../ui/table';
import { toast } from '../ui/toast';
import { Allowed, api, pageLimit, schemas, useMay, useSeesAll, type Tenant, type TenantSpec } from './api';
import { useRefresh } from './live';
import { sizeField } from './volumes/sizes';

/** All tenants, for suggestions. */
export function useTenants(): readonly Tenant[] {
  return useQuery({ queryKey: ['tenants', 'all'], queryFn: ({ signal }) => body(api.GET('/tenants', { params: { query: { limit: pageLimit } }, signal })), enabled: useSeesAll() }).data ?? [];
}

/** What a tenant has used of its limits. Without a limit there is no bar. */
export function TenantUse({ tenant: { quota, used } }: { tenant: Tenant }) {
  return (
    <Limits
      of={[
        { label: 'Volumes', limit: quota.volumes, value: used.volumes, text: count },
        { label: 'Capacity', limit: quota.bytes, value: used.bytes, text: bytes },
        { label: 'Snapshots', limit: quota.snapshots, value: used.snapshots, text: count },
      ]}
    />
  );
}

const of = (value: number, limit: number | undefined, text = count) => (limit === undefined ? text(value) : `${text(value)} of ${text(limit)}`);

const columns: readonly Column<Tenant>[] = [
  { id: 'name', header: 'Tenant', cell: (t) => t.name, sort: (t) => t.name },
  { id: 'volumes', header: 'Volumes', cell: (t) => of(t.used.volumes, t.quota.volumes), sort: (t) => t.used.volumes, text: () => '' },
  { id: 'bytes', header: 'Capacity', cell: (t) => of(t.used.bytes, t.quota.bytes, bytes), sort: (t) => t.used.bytes, text: () => '' },
  { id: 'snapshots', header: 'Snapshots', cell: (t) => of(t.used.snapshots, t.quota.snapshots), sort: (t) => t.used.snapshots, text: () => '' },
  { id: 'description', header: 'Description', cell: (t) => t.description, text: (t) => t.description },
];

interface Named extends TenantSpec {
  name: string;
}

const schema: Schema = {
  ...schemas.PutTenant,
  required: ['name'],
  properties: { name: { type: 'string', minLength: 1, maxLength: 63, pattern: '^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$' }, ...schemas.PutTenant.properties },
};
const noLimit = 'No limit, when empty';

export function Tenants() {
  const refresh = useRefresh();
  const confirm = useConfirm();
  const allowed = useMay();
  const [open, setOpen] = useState<{ tenant?: Tenant; look?: boolean }>();
  const pages = usePages(['tenants', 'list'], (cursor, signal) => page(api.GET('/tenants', { params: { query: { cursor } }, signal })));
  const close = () => setOpen(undefined);
  const remove = (t: Tenant) =>
    confirm({
      title: `Remove the tenant ${t.name}?`,
      body: (
        <p>
          It has {plural(t.used.volumes, 'volume')} and {plural(t.used.snapshots, 'snapshot')}. Only a tenant without both can be removed.
        </p>
      ),
      action: 'Remove the tenant',
      danger: true,
      run: async () => {
        await api.DELETE('/tenants/{name}', { params: { path: { name: t.name } } });
        await refresh();
      },
      done: `${t.name} is removed.`,
    });
  return (
    <Page
      title="Tenants"
      lead="Tenants own volumes. A quota limits what the volumes of a tenant have together."
      actions={
        <Allowed operation="PutTenant">
          <button type="button" className="btn btn-primary" onClick={() => setOpen({})}>
            Add a tenant
          </button>
        </Allowed>
      }
    >
      <Card flush>
        <Table
          label="Tenants"
          noun="tenant"
          columns={columns}
          pages={pages}
          rowKey={(t) => t.name}
          actions={(t) => [
            { label: 'Quota and use', run: () => setOpen({ tenant: t, look: true }) },
            ...(allowed('PutTenant') ? [{ label: 'Change…', run: () => setOpen({ tenant: t }) }] : []),
            ...(allowed('DeleteTenant') ? [{ label: 'Remove…', danger: true, run: () => remove(t) }] : []),
          ]}
          empty={{ icon: 'org', title: 'There are no tenants', text: 'Without tenants, volumes belong to nobody in particular, and every token without a tenant sees them.' }}
        />
      </Card>
      {open?.look && open.tenant && (
        <Dialog title={`Quota of ${open.tenant.name}`} onClose={close}>
          <div className="dialog-body">
            <TenantUse tenant={open.tenant} />
          </div>
        </Dialog>
      )}
      {open && !open.look && (
        <FormDialog<Named>
          title={open.tenant ? `Change ${open.tenant.name}` : 'Add a tenant'}
          two
          wide
          schema={schema}
          fields={[
            ...(open.tenant ? [] : [{ name: 'name', label: 'Name' }]),
            { name: 'description', label: 'Description' },
            { name: 'quota.volumes', label: 'Volumes', hint: noLimit },
            sizeField('quota.bytes', 'Capacity', { hint: `${noLimit}. Of volumes, by their sizes` }),
            { name: 'quota.snapshots', label: 'Snapshots', hint: noLimit },
          ]}
          {...(open.tenant && { values: open.tenant })}
          prepare={(input) => (open.tenant ? { ...input, name: open.tenant.name } : input)}
          warning={({ quota }) => {
            const used = open.tenant?.used;
            const below = used && ((quota?.volumes ?? Infinity) < used.volumes || (quota?.bytes ?? Infinity) < used.bytes || (quota?.snapshots ?? Infinity) < used.snapshots);
            return below ? 'The tenant has more than that. Nothing is removed; it only cannot make more.' : undefined;
          }}
          action={open.tenant ? 'Save' : 'Add the tenant'}
          onClose={close}
          onSubmit={async ({ name, ...spec }) => {
            await api.PUT('/tenants/{name}', { params: { path: { name } }, body: spec });
            toast(`${name} is ${open.tenant ? 'changed' : 'added'}.`);
            close();
            await refresh();
          }}
        />
      )}
    </Page>
  );
}
