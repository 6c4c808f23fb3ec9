/** Policies: what volumes can be made of. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import type { Schema } from '../ui/schema';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { Allowed, api, schemas, useMay, type Backend, type Policy, type PolicySpec } from './api';
import { backendPath, useBackends } from './links';

interface Named extends PolicySpec {
  name: string;
}

const schema: Schema = {
  ...schemas.PutPolicy,
  required: ['name', ...(schemas.PutPolicy.required ?? [])],
  properties: { name: { type: 'string', minLength: 1, maxLength: 63, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' }, ...schemas.PutPolicy.properties },
};

const columnsWith = (backends: readonly Backend[]): readonly Column<Policy>[] => {
  const of = (p: Policy) => backends.find((b) => b.id === p.backend_id);
  return [
    { id: 'name', header: 'Policy', cell: (p) => p.name, sort: (p) => p.name },
    { id: 'kind', header: 'Kind', cell: (p) => p.kind, sort: (p) => p.kind },
    {
      id: 'backend',
      header: 'Backend',
      cell: (p) => {
        const b = of(p);
        return b ? <Link href={backendPath(b)}>{b.name}</Link> : <span className="muted">not known</span>;
      },
      sort: (p) => of(p)?.name ?? '',
    },
    { id: 'pool', header: 'Pool', cell: (p) => p.pool || <span className="muted">the backend chooses</span>, sort: (p) => p.pool },
    { id: 'description', header: 'Description', cell: (p) => p.description, text: (p) => p.description },
    { id: 'created', header: 'Added', cell: (p) => <Time at={p.created_at} />, sort: (p) => p.created_at, text: () => '', hidden: true },
  ];
};

export function Policies() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const allowed = useMay();
  const backends = useBackends().data ?? [];
  const [open, setOpen] = useState<{ policy?: Policy }>();
  const pages = usePages(['policies', 'list'], (cursor, signal) => page(api.GET('/policies', { params: { query: { cursor } }, signal })));
  const refresh = () => queries.invalidateQueries({ queryKey: ['policies'] });
  const close = () => setOpen(undefined);
  const remove = (p: Policy) =>
    confirm({
      title: `Remove the policy ${p.name}?`,
      body: <p>No volumes can be made by it any more. Those that were made by it stay as they are.</p>,
      action: 'Remove the policy',
      danger: true,
      run: async () => {
        await api.DELETE('/policies/{name}', { params: { path: { name: p.name } } });
        await refresh();
      },
      done: `${p.name} is removed.`,
    });
  return (
    <Page
      title="Policies"
      lead="A policy says where the volumes that are made by it are, and of which kind. Volumes that are there stay as they are when it changes."
      actions={
        <Allowed operation="PutPolicy">
          <button type="button" className="btn btn-primary" onClick={() => setOpen({})}>
            Add a policy
          </button>
        </Allowed>
      }
    >
      <Card flush>
        <Table
          label="Policies"
          noun="policy"
          nouns="policies"
          columns={columnsWith(backends)}
          pages={pages}
          rowKey={(p) => p.name}
          actions={(p) => [
            ...(allowed('PutPolicy') ? [{ label: 'Change…', run: () => setOpen({ policy: p }) }] : []),
            ...(allowed('DeletePolicy') ? [{ label: 'Remove…', danger: true, run: () => remove(p) }] : []),
          ]}
          empty={{ icon: 'policy', title: 'There are no policies', text: 'Volumes are made by policies. Add one for each backend that is to have volumes.' }}
        />
      </Card>
      {open && (
        <FormDialog<Named>
          title={open.policy ? `Change ${open.policy.name}` : 'Add a policy'}
          schema={schema}
          fields={[
            ...(open.policy ? [] : [{ name: 'name', label: 'Name', hint: 'Volumes without a policy are made by the one called default' }]),
            { name: 'backend_id', label: 'Backend', options: backends.map((b) => ({ value: b.id, label: b.name })), hint: 'Where volumes are made' },
            {
              name: 'kind',
              label: 'Kind',
              options: [
                { value: 'block', label: 'block: for disks' },
                { value: 'filesystem', label: 'filesystem: for files' },
              ],
              hint: '',
            },
            { name: 'pool', label: 'Pool', hint: 'The backend chooses, when empty' },
            { name: 'description', label: 'Description', hint: 'Shown to those who make volumes' },
          ]}
          values={open.policy ?? { backend_id: backends[0]?.id, kind: 'block' }}
          // What the form does not ask for stays.
          prepare={(input) => (open.policy ? { ...(open.policy.storage_class && { storage_class: open.policy.storage_class }), ...(open.policy.snapshot_class && { snapshot_class: open.policy.snapshot_class }), ...input, name: open.policy.name } : input)}
          action={open.policy ? 'Save' : 'Add the policy'}
          onClose={close}
          onSubmit={async ({ name, ...spec }) => {
            await api.PUT('/policies/{name}', { params: { path: { name } }, body: spec });
            toast(`${name} is ${open.policy ? 'changed' : 'added'}.`);
            close();
            await refresh();
          }}
        />
      )}
    </Page>
  );
}
