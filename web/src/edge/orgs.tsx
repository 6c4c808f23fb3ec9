/** Tenants: created with their three tokens, and deleted. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Copyable, SecretOnce } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { Allowed, api, schemas, useMay, type NewOrg, type Org } from './api';

const columns: Column<Org>[] = [
  { id: 'name', header: 'Name', cell: (o) => o.name, sort: (o) => o.name },
  { id: 'id', header: 'ID', cell: (o) => <Copyable text={o.id} />, text: (o) => o.id },
  { id: 'created', header: 'Created', cell: (o) => <Time at={o.created_at} />, sort: (o) => o.created_at, text: () => '' },
];

export function Orgs() {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<NewOrg>();
  const pages = usePages(['orgs', 'list'], (cursor, signal) => page(api.GET('/orgs', { params: { query: { cursor } }, signal })));
  const remove = (org: Org) =>
    confirm({
      title: `Delete ${org.name}?`,
      body: (
        <p>
          The three tokens of <b>{org.name}</b> stop working at once. Its sites, devices and routes stay, and are seen by global tokens only.
        </p>
      ),
      action: 'Delete the org',
      danger: true,
      run: async () => {
        await api.DELETE('/orgs/{id}', { params: { path: { id: org.id } } });
        await queries.invalidateQueries({ queryKey: ['orgs'] });
      },
      done: `${org.name} is deleted.`,
    });
  const create = (
    <Allowed operation="CreateOrg">
      <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
        Create an org
      </button>
    </Allowed>
  );
  return (
    <Page title="Orgs" lead="Tenants. An org’s tokens see and change only what belongs to the org." actions={create}>
      <Card flush>
        <Table
          label="Orgs"
          noun="org"
          columns={columns}
          pages={pages}
          rowKey={(o) => o.id}
          actions={may('DeleteOrg') ? (o) => [{ label: 'Delete', danger: true, run: () => remove(o) }] : undefined}
          bulk={
            may('DeleteOrg')
              ? [
                  {
                    label: 'Delete',
                    body: 'Their tokens stop working at once. Their sites, devices and routes stay, and are seen by global tokens only.',
                    danger: true,
                    run: (o: Org) => api.DELETE('/orgs/{id}', { params: { path: { id: o.id } } }),
                    after: () => queries.invalidateQueries({ queryKey: ['orgs'] }),
                  },
                ]
              : []
          }
          empty={{ icon: 'org', title: 'No orgs', text: 'Without orgs everything belongs to the global tokens.', action: create }}
        />
      </Card>
      {creating && (
        <FormDialog<{ name: string }>
          title="Create an org"
          schema={schemas.CreateOrg}
          fields={[{ name: 'name', label: 'Name' }]}
          action="Create the org"
          onClose={() => setCreating(false)}
          onSubmit={async (input) => {
            setMade(await body(api.POST('/orgs', { body: input })));
            setCreating(false);
            await queries.invalidateQueries({ queryKey: ['orgs'] });
          }}
        />
      )}
      {made && (
        <Dialog title={`Tokens of ${made.name}`} onClose={() => setMade(undefined)} wide once>
          <div className="dialog-body stack">
            <SecretOnce label="Enrollment token: enrolls sites into the org" value={made.enrollment_token} />
            <SecretOnce label="Admin token: reads and changes what belongs to the org" value={made.admin_token} />
            <SecretOnce label="Viewer token: reads what belongs to the org" value={made.viewer_token} />
          </div>
          <div className="dialog-foot">
            <button type="button" className="btn btn-primary" onClick={() => setMade(undefined)}>
              I have copied them
            </button>
          </div>
        </Dialog>
      )}
    </Page>
  );
}
