/** Enrollment tokens that were created here and are still valid. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { CopyBox, SecretOnce } from '../../ui/copy';
import { Dialog } from '../../ui/dialog';
import type { FieldSpec } from '../../ui/draft';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Table, type Column } from '../../ui/table';
import { EndTime, Time } from '../../ui/time';
import { Allowed, api, schemas, useMay, type EnrollmentToken, type EnrollmentTokenInput, type NewEnrollmentToken } from '../api';
import { Id } from '../links';
import { useOrgOptions } from '../org-choice';
import { agentCommand, lifetimes } from './enroll';

const columns: Column<EnrollmentToken>[] = [
  { id: 'name', header: 'Name', cell: (t) => t.name, sort: (t) => t.name },
  { id: 'uses', header: 'Sites enrolled', cell: (t) => `${t.uses} of ${t.max_uses}`, sort: (t) => t.uses, end: true },
  { id: 'expires', header: 'Expires', cell: (t) => <EndTime at={t.expires_at} />, sort: (t) => t.expires_at, text: () => '' },
  { id: 'created', header: 'Created', cell: (t) => <Time at={t.created_at} />, sort: (t) => t.created_at, text: () => '' },
  { id: 'org', header: 'Org', cell: (t) => (t.org_id ? <Id id={t.org_id} /> : <span className="muted">none</span>), sort: (t) => t.org_id, hidden: true },
];

export function EnrollmentTokens() {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const orgs = useOrgOptions();
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<NewEnrollmentToken>();
  const pages = usePages(['tokens', 'list'], (cursor, signal) => page(api.GET('/enrollment-tokens', { params: { query: { cursor } }, signal })));

  const withdraw = (token: EnrollmentToken) =>
    confirm({
      title: `Revoke ${token.name}?`,
      body: (
        <p>
          Nobody can enroll a site with <b>{token.name}</b> any more. The {plural(token.uses, 'site')} that it has enrolled {token.uses === 1 ? 'stays' : 'stay'}.
        </p>
      ),
      action: 'Revoke the token',
      danger: true,
      run: async () => {
        await api.DELETE('/enrollment-tokens/{id}', { params: { path: { id: token.id } } });
        await queries.invalidateQueries({ queryKey: ['tokens'] });
      },
      done: `${token.name} no longer enrolls sites.`,
    });

  const fields: FieldSpec[] = [
    { name: 'name', label: 'Name', placeholder: 'installers, week 14' },
    { name: 'max_uses', label: 'Sites it may enroll' },
    { name: 'ttl_seconds', label: 'It works for', kind: 'choice', options: lifetimes },
    ...(orgs.length ? [{ name: 'org_id', label: 'Org', options: [{ value: '', label: 'No org' }, ...orgs] }] : []),
  ];
  const create = (
    <Allowed operation="CreateEnrollmentToken">
      <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
        Create a token
      </button>
    </Allowed>
  );
  return (
    <Page
      title="Enrollment tokens"
      above={[{ title: 'Sites', href: '/sites' }]}
      lead="Tokens that were made here and have not expired. The token of the server’s configuration and those that orgs were created with are not listed."
      actions={create}
    >
      <Card flush>
        <Table
          label="Enrollment tokens"
          noun="token"
          columns={columns}
          pages={pages}
          rowKey={(t) => t.id}
          actions={may('DeleteEnrollmentToken') ? (t) => [{ label: 'Revoke', danger: true, run: () => withdraw(t) }] : undefined}
          bulk={
            may('DeleteEnrollmentToken')
              ? [
                  {
                    label: 'Revoke',
                    body: 'Nobody can enroll a site with them any more. The sites that they enrolled stay.',
                    danger: true,
                    run: (t: EnrollmentToken) => api.DELETE('/enrollment-tokens/{id}', { params: { path: { id: t.id } } }),
                    after: () => queries.invalidateQueries({ queryKey: ['tokens'] }),
                  },
                ]
              : []
          }
          empty={{ icon: 'key', title: 'No enrollment tokens', text: 'A token lets a few sites enroll for a short time.', action: create }}
        />
      </Card>
      {creating && (
        <FormDialog<EnrollmentTokenInput>
          title="Create an enrollment token"
          schema={schemas.CreateEnrollmentToken}
          fields={fields}
          values={{ ttl_seconds: 3600 }}
          action="Create the token"
          onClose={() => setCreating(false)}
          onSubmit={async (input) => {
            setMade(await body(api.POST('/enrollment-tokens', { body: input })));
            setCreating(false);
            await queries.invalidateQueries({ queryKey: ['tokens'] });
          }}
        />
      )}
      {made && (
        <Dialog title={`Token ${made.name}`} onClose={() => setMade(undefined)} wide once>
          <div className="dialog-body stack">
            <SecretOnce label="Enrollment token" value={made.token} />
            <div className="stack-tight">
              <span className="field-label">Command to run at a site</span>
              <CopyBox label="Agent command" text={agentCommand(location.origin, made.token, 'NAME')} />
              <span className="field-hint">Put the site’s name in place of NAME.</span>
            </div>
          </div>
          <div className="dialog-foot">
            <button type="button" className="btn btn-primary" onClick={() => setMade(undefined)}>
              I have copied it
            </button>
          </div>
        </Dialog>
      )}
    </Page>
  );
}
