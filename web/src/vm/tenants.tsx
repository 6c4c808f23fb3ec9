/** Tenants: who owns VMs, and how much of everything. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Dialog } from '../ui/dialog';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import type { Schema } from '../ui/schema';
import { mib } from '../ui/size';
import { Table, type Column } from '../ui/table';
import { toast } from '../ui/toast';
import { Allowed, api, schemas, useMay, type Tenant, type TenantSpec } from './api';
import { QuotaUse } from './overview';

const of = (value: number, limit: number | undefined, text = count) => (limit === undefined ? text(value) : `${text(value)} of ${text(limit)}`);

const columns: readonly Column<Tenant>[] = [
  { id: 'name', header: 'Tenant', cell: (t) => t.name, sort: (t) => t.name },
  { id: 'vms', header: 'VMs', cell: (t) => of(t.used.vms, t.quota.vms), sort: (t) => t.used.vms, text: () => '' },
  { id: 'cpus', header: 'Processors', cell: (t) => of(t.used.cpus, t.quota.cpus), sort: (t) => t.used.cpus, text: () => '' },
  { id: 'memory', header: 'Memory', cell: (t) => of(t.used.memory, t.quota.memory, mib), sort: (t) => t.used.memory, text: () => '' },
  { id: 'users', header: 'Users', cell: (t) => count(t.used.users), sort: (t) => t.used.users, text: () => '' },
  { id: 'description', header: 'Description', cell: (t) => t.description, text: (t) => t.description },
];

interface Named extends TenantSpec {
  name: string;
}

const schema: Schema = { ...schemas.PutTenant, required: ['name'], properties: { name: { type: 'string', minLength: 1, maxLength: 63 }, ...schemas.PutTenant.properties } };
const noLimit = 'No limit, when empty';

export function Tenants() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const allowed = useMay();
  const [open, setOpen] = useState<{ tenant?: Tenant; look?: boolean }>();
  const pages = usePages(['tenants', 'list'], (cursor, signal) => page(api.GET('/api/tenants', { params: { query: { cursor } }, signal })));
  const refresh = () => queries.invalidateQueries({ queryKey: ['tenants'] });
  const close = () => setOpen(undefined);
  const remove = (t: Tenant) =>
    confirm({
      title: `Remove the tenant ${t.name}?`,
      body: <p>It has {count(t.used.vms)} VMs and {count(t.used.users)} users. Only a tenant without VMs and users can be removed.</p>,
      action: 'Remove the tenant',
      danger: true,
      run: async () => {
        await api.DELETE('/api/tenants/{name}', { params: { path: { name: t.name } } });
        await refresh();
      },
      done: `${t.name} is removed.`,
    });
  return (
    <Page
      title="Tenants"
      lead="Tenants own VMs. A quota limits what the VMs of a tenant have together."
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
          empty={{ icon: 'org', title: 'There are no tenants', text: 'Without tenants, VMs belong to nobody in particular, and every user without a tenant sees them.' }}
        />
      </Card>
      {open?.look && open.tenant && (
        <Dialog title={`Quota of ${open.tenant.name}`} onClose={close}>
          <div className="dialog-body">
            <QuotaUse tenant={open.tenant} />
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
            { name: 'quota.vms', label: 'VMs', hint: noLimit },
            { name: 'quota.cpus', label: 'Processors', hint: noLimit },
            { name: 'quota.memory', label: 'Memory in MiB', hint: noLimit },
            { name: 'quota.disk', label: 'Disk in GiB', hint: noLimit },
            { name: 'quota.snapshots', label: 'Snapshots', hint: noLimit },
            { name: 'quota.backup_bytes', label: 'Backups in bytes', hint: `${noLimit}. What they take in the repository` },
          ]}
          {...(open.tenant && { values: open.tenant })}
          prepare={(input) => (open.tenant ? { ...input, name: open.tenant.name } : input)}
          action={open.tenant ? 'Save' : 'Add the tenant'}
          onClose={close}
          onSubmit={async ({ name, ...spec }) => {
            await api.PUT('/api/tenants/{name}', { params: { path: { name } }, body: spec });
            toast(`${name} is ${open.tenant ? 'changed' : 'added'}.`);
            close();
            await refresh();
          }}
        />
      )}
    </Page>
  );
}
