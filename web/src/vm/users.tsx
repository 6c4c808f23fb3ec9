/** Users: who may sign in, as what, and for which tenant. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useCaller } from '../ui/access';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import type { FieldSpec } from '../ui/draft';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status } from '../ui/status';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { api, pageLimit, schemas, useSeesAll, type User, type UserChange, type UserSpec } from './api';

const columns: readonly Column<User>[] = [
  { id: 'username', header: 'User', cell: (u) => u.username, sort: (u) => u.username },
  { id: 'role', header: 'Role', cell: (u) => u.role, sort: (u) => u.role },
  { id: 'tenant', header: 'Tenant', cell: (u) => u.tenant ?? <span className="muted">none</span>, text: (u) => u.tenant ?? '' },
  { id: 'source', header: 'Password', cell: (u) => (u.source === 'local' ? 'of this service' : 'of the host'), text: (u) => u.source },
  { id: 'factor', header: 'Second factor', cell: (u) => (u.two_factor ? <Status tone="ok">on</Status> : <Status tone="idle">off</Status>), text: () => '' },
  { id: 'created', header: 'Added', cell: (u) => <Time at={u.created} />, sort: (u) => u.created, text: () => '' },
];

const roles = [
  { value: 'viewer', label: 'viewer: reads' },
  { value: 'user', label: 'user: makes and operates VMs' },
  { value: 'admin', label: 'admin: also deletes, and manages users' },
];

export function Users() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const seesAll = useSeesAll();
  const me = useCaller().subject;
  const [open, setOpen] = useState<{ user?: User; what?: 'password' }>();
  const pages = usePages(['users'], (cursor, signal) => page(api.GET('/api/users', { params: { query: { cursor } }, signal })));
  const tenants = useQuery({ queryKey: ['tenants', 'all'], queryFn: ({ signal }) => body(api.GET('/api/tenants', { params: { query: { limit: pageLimit } }, signal })) }).data?.map((t) => t.name) ?? [];
  const refresh = () => queries.invalidateQueries({ queryKey: ['users'] });
  const close = () => setOpen(undefined);
  const of = (u: User) => ({ params: { path: { username: u.username } } });

  const remove = (u: User) =>
    confirm({
      title: `Remove ${u.username}?`,
      body: (
        <p>
          <b>{u.username}</b> is signed out everywhere at once. VMs of the tenant stay.{u.source === 'pam' && ' The account of the host stays, too, and gets its usual role at the next sign-in.'}
        </p>
      ),
      action: 'Remove the user',
      danger: true,
      run: async () => {
        await api.DELETE('/api/users/{username}', of(u));
        await refresh();
      },
      done: `${u.username} is removed.`,
    });
  const disable = (u: User) =>
    confirm({
      title: `Turn the second factor of ${u.username} off?`,
      body: <p>For somebody who has lost the device and the recovery codes. From then on, the password alone is enough to sign in.</p>,
      action: 'Turn it off',
      danger: true,
      run: async () => {
        await api.PATCH('/api/users/{username}', { ...of(u), body: { two_factor: false } });
        await refresh();
      },
      done: `The second factor of ${u.username} is off.`,
    });
  // The tenant of a user whom an admin of a tenant adds is that one.
  const tenant: FieldSpec[] = seesAll ? [{ name: 'tenant', label: 'Tenant', keepEmpty: open?.user !== undefined, options: [{ value: '', label: 'none' }, ...tenants.map((t) => ({ value: t, label: t }))] }] : [];
  return (
    <Page
      title="Users"
      lead="Who may sign in. Accounts of the host appear here once they have signed in."
      actions={
        <button type="button" className="btn btn-primary" onClick={() => setOpen({})}>
          Add a user
        </button>
      }
    >
      <Card flush>
        <Table
          label="Users"
          noun="user"
          columns={columns}
          pages={pages}
          rowKey={(u) => u.id}
          actions={(u) => [
            { label: 'Change…', run: () => setOpen({ user: u }) },
            ...(u.source === 'local' ? [{ label: 'Set a password…', run: () => setOpen({ user: u, what: 'password' as const }) }] : []),
            ...(u.two_factor ? [{ label: 'Turn the second factor off…', danger: true, run: () => disable(u) }] : []),
            ...(u.username === me ? [] : [{ label: 'Remove…', danger: true, run: () => remove(u) }]),
          ]}
          empty={{ icon: 'org', title: 'There are no users' }}
        />
      </Card>
      {open && !open.user && (
        <FormDialog<UserSpec>
          title="Add a user"
          schema={schemas.CreateUser}
          fields={[
            { name: 'username', label: 'Username' },
            { name: 'role', label: 'Role', options: roles },
            ...tenant,
            { name: 'source', label: 'Password', options: [{ value: 'local', label: 'Of this service' }, { value: 'pam', label: 'Of the host’s account' }], hint: '' },
            { name: 'password', label: 'Its password', kind: 'password', hint: 'At least 8 characters', when: (d) => d['source'] !== 'pam' },
          ]}
          values={{ role: 'user', source: 'local' }}
          action="Add the user"
          onClose={close}
          onSubmit={async (input) => {
            await api.POST('/api/users', { body: input });
            toast(`${input.username} is added.`);
            close();
            await refresh();
          }}
        />
      )}
      {open?.user && (
        <FormDialog<UserChange>
          title={open.what === 'password' ? `Set a password for ${open.user.username}` : `Change ${open.user.username}`}
          schema={schemas.UpdateUser}
          fields={open.what === 'password' ? [{ name: 'password', label: 'New password', kind: 'password', hint: 'At least 8 characters. Sessions of the user end.' }] : [{ name: 'role', label: 'Role', options: roles }, ...tenant]}
          values={open.what === 'password' ? {} : { role: open.user.role, tenant: open.user.tenant }}
          action="Save"
          onClose={close}
          onSubmit={async (input) => {
            const u = open.user as User;
            if (open.what === 'password' && !input.password) throw new Error('Type the new password.');
            await api.PATCH('/api/users/{username}', { ...of(u), body: input });
            toast(`${u.username} is changed.`);
            close();
            await refresh();
          }}
        />
      )}
    </Page>
  );
}
