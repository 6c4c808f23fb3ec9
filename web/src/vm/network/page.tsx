/** Network policies of all VMs: what is not in force, security groups, policies with selectors, decisions. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Dialog } from '../../ui/dialog';
import { useDiscard } from '../../ui/discard';
import { Card, Tile } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { checkJson } from '../../ui/json-check';
import { JsonEditor } from '../../ui/json-edit';
import { Failure, Notice } from '../../ui/notice';
import { count, plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages, wholeList } from '../../ui/paging';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { Time } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, pageLimit, schemas, useMay, useSeesAll, type DataplaneProblem, type NetworkPolicy, type Observed, type SecurityGroup, type SecurityGroupSpec } from '../api';
import { VMLink } from '../links';
import { PolicyStatus } from '../states';
import { flowColumns, flowKey } from './flows';
import { RuleList } from './rule-list';

export function Network() {
  return (
    <Page title="Network" lead="What traffic VMs on bridges may send and receive. Each VM’s own policy is on its page.">
      <div className="stack">
        <Health />
        <Tabs
          label="Parts of the network"
          inAddress
          tabs={[
            { id: 'groups', label: 'Security groups', content: () => <Groups /> },
            { id: 'policies', label: 'Policies by label', content: () => <Policies /> },
            { id: 'decisions', label: 'Decisions', content: () => <Decisions /> },
          ]}
        />
      </div>
    </Page>
  );
}

const problemColumns: readonly Column<DataplaneProblem>[] = [
  { id: 'vm', header: 'VM', cell: (p) => <VMLink name={p.vm} tenant={p.tenant} /> },
  { id: 'status', header: 'State', cell: (p) => <PolicyStatus state={p.status} /> },
  { id: 'reason', header: 'Why', cell: (p) => p.reason },
];

function Health() {
  const { data, error, refetch } = useQuery({ queryKey: ['dataplane', 'health'], queryFn: ({ signal }) => body(api.GET('/api/dataplane/health', { signal })), refetchInterval: 5_000 });
  if (error && !data) return <Failure error={error} retry={() => void refetch()} />;
  const waiting = <span className="skeleton" />;
  const bad = data ? data.vms.pending + data.vms.failed + data.vms.unsupported : 0;
  return (
    <>
      <div className="tiles">
        <Tile label="In force" value={data ? count(data.vms.applied) : waiting} note="VMs with a policy" />
        <Tile label="Not in force" value={data ? count(bad) : waiting} note={bad ? 'see below' : 'none'} bad={bad > 0} />
        <Tile label="Without a policy" value={data ? count(data.vms.none) : waiting} note="everything is allowed" />
        <Tile label="Groups" value={data ? count(data.groups) : waiting} {...(data && { note: plural(data.policies, 'policy by label', 'policies by label') })} />
      </div>
      {data && data.problems.length > 0 && (
        <Card title="Policies that are not in force" flush>
          <Table brief label="Policies that are not in force" noun="VM" columns={problemColumns} pages={wholeList(data.problems)} rowKey={(p) => `${p.tenant} ${p.vm}`} empty={{ icon: 'check', title: 'All are in force' }} />
        </Card>
      )}
    </>
  );
}

/** Whose a document is, as the API takes it. */
const ofTenant = (d: { every_tenant: boolean; tenant: string }, seesAll: boolean) => (seesAll ? { tenant: d.every_tenant ? '*' : d.tenant } : {});
const owner = (d: { every_tenant: boolean; tenant: string }) => (d.every_tenant ? 'every tenant' : d.tenant || 'VMs without a tenant');

/** For whom an admin of everything makes a document. */
function useOwners() {
  const seesAll = useSeesAll();
  const tenants = useQuery({ queryKey: ['tenants', 'all'], queryFn: ({ signal }) => body(api.GET('/api/tenants', { params: { query: { limit: pageLimit } }, signal })), enabled: seesAll });
  return seesAll ? [{ value: '*', label: 'every tenant' }, { value: '', label: 'VMs without a tenant' }, ...(tenants.data ?? []).map((t) => ({ value: t.name, label: t.name }))] : undefined;
}

const groupColumns: readonly Column<SecurityGroup>[] = [
  { id: 'name', header: 'Group', cell: (g) => g.name, sort: (g) => g.name },
  { id: 'owner', header: 'For', cell: owner, sort: owner },
  { id: 'rules', header: 'Rules', cell: (g) => count(g.rules.length), sort: (g) => g.rules.length, text: () => '', end: true },
  { id: 'description', header: 'Description', cell: (g) => g.description, text: (g) => g.description },
  { id: 'updated', header: 'Changed', cell: (g) => <Time at={g.updated} />, sort: (g) => g.updated, text: () => '' },
];

interface NewGroup {
  name: string;
  description?: string;
  owner?: string;
}

function Groups() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const allowed = useMay();
  const seesAll = useSeesAll();
  const owners = useOwners();
  const [adding, setAdding] = useState(false);
  const [shown, setShown] = useState('');
  const pages = usePages(['groups', 'list'], (cursor, signal) => page(api.GET('/api/dataplane/groups', { params: { query: { cursor } }, signal })), { refreshSeconds: 5 });
  const refresh = () => Promise.all(['groups', 'dataplane', 'vms'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  const key = (g: SecurityGroup) => `${g.every_tenant ? '*' : g.tenant}/${g.name}`;
  const open = pages.rows?.find((g) => key(g) === shown);
  const mine = (g: SecurityGroup) => seesAll || !g.every_tenant;
  const put = async (spec: SecurityGroupSpec, tenant: { tenant?: string }) => {
    await api.POST('/api/dataplane/groups', { params: { query: tenant }, body: spec });
    await refresh();
  };
  const remove = (g: SecurityGroup) =>
    confirm({
      title: `Delete the group ${g.name}?`,
      body: <p>Only a group that no VM is in and no rule names can be deleted.</p>,
      action: 'Delete the group',
      danger: true,
      run: async () => {
        await api.DELETE('/api/dataplane/groups/{name}', { params: { path: { name: g.name }, query: ofTenant(g, seesAll) } });
        await refresh();
      },
      done: `The group ${g.name} is deleted.`,
    });
  return (
    <div className="stack">
      <Card
        title="Security groups"
        actions={
          <Allowed operation="PutSecurityGroup">
            <button type="button" className="btn btn-primary" onClick={() => setAdding(true)}>
              Add a group
            </button>
          </Allowed>
        }
        flush
      >
        <Table
          at="groups."
          label="Security groups"
          noun="group"
          columns={groupColumns}
          pages={pages}
          rowKey={key}
          actions={(g) => [
            { label: 'Rules', run: () => setShown(key(g)) },
            ...(allowed('DeleteSecurityGroup') && mine(g) ? [{ label: 'Delete…', danger: true, run: () => remove(g) }] : []),
          ]}
          empty={{ icon: 'policy', title: 'There are no groups', text: 'A group holds rules for all VMs that are in it. VMs are put into groups on their pages.' }}
        />
      </Card>
      {open && (
        <RuleList
          title={`Rules of ${open.name}`}
          label={`Rules of the group ${open.name}`}
          rules={open.rules}
          groups={pages.rows?.map((g) => g.name) ?? []}
          readOnly={!allowed('PutSecurityGroup') || !mine(open)}
          empty="VMs in the group are not restricted by it."
          onChange={async (rules) => {
            await put({ name: open.name, description: open.description, rules }, ofTenant(open, seesAll));
            toast(`The rules of ${open.name} are stored.`);
          }}
        />
      )}
      {adding && (
        <FormDialog<NewGroup>
          title="Add a security group"
          schema={{ ...schemas.PutSecurityGroup, properties: { ...schemas.PutSecurityGroup.properties, name: { type: 'string', minLength: 1, maxLength: 63 }, owner: { type: 'string' } } }}
          fields={[{ name: 'name', label: 'Name' }, ...(owners ? [{ name: 'owner', label: 'For', options: owners, keepEmpty: true }] : []), { name: 'description', label: 'Description' }]}
          values={owners ? { owner: '*' } : {}}
          action="Add the group"
          onClose={() => setAdding(false)}
          onSubmit={async ({ owner: whose, ...spec }) => {
            // Adding would replace one of this name.
            const tenant = whose ?? '';
            if (pages.rows?.some((g) => g.name === spec.name && (!owners || (g.every_tenant ? '*' : g.tenant) === tenant))) throw new Error(`There is a group ${spec.name} already.`);
            await put({ ...spec, rules: [] }, owners ? { tenant } : {});
            setAdding(false);
            setShown(`${owners ? tenant : ''}/${spec.name}`);
          }}
        />
      )}
    </div>
  );
}

const policyColumns: readonly Column<NetworkPolicy>[] = [
  { id: 'name', header: 'Policy', cell: (p) => p.name, sort: (p) => p.name },
  { id: 'owner', header: 'For', cell: owner, sort: owner },
  { id: 'updated', header: 'Changed', cell: (p) => <Time at={p.updated} />, sort: (p) => p.updated, text: () => '' },
];

const example = { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata: { name: 'db' }, spec: { endpointSelector: { matchLabels: { role: 'db' } }, ingress: [{ fromEndpoints: [{ matchLabels: { role: 'web' } }], toPorts: [{ ports: [{ port: '5432', protocol: 'TCP' }] }] }] } };

function Policies() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const allowed = useMay();
  const seesAll = useSeesAll();
  const [open, setOpen] = useState<{ policy?: NetworkPolicy }>();
  const pages = usePages(['cnp'], (cursor, signal) => page(api.GET('/api/dataplane/cnp', { params: { query: { cursor } }, signal })));
  const refresh = () => Promise.all(['cnp', 'dataplane', 'vms'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  const remove = (p: NetworkPolicy) =>
    confirm({
      title: `Delete the policy ${p.name}?`,
      body: <p>The VMs that it selects are not restricted by it any more, and what only it allowed is denied where another policy applies.</p>,
      action: 'Delete the policy',
      danger: true,
      run: async () => {
        await api.DELETE('/api/dataplane/cnp/{name}', { params: { path: { name: p.name }, query: ofTenant(p, seesAll) } });
        await refresh();
      },
      done: `The policy ${p.name} is deleted.`,
    });
  return (
    <Card
      title="Policies that select VMs by their labels"
      actions={
        <Allowed operation="PutNetworkPolicy">
          <button type="button" className="btn btn-primary" onClick={() => setOpen({})}>
            Add a policy
          </button>
        </Allowed>
      }
      flush
    >
      <Table
        at="cnp."
        label="Policies by label"
        noun="policy"
        nouns="policies"
        columns={policyColumns}
        pages={pages}
        rowKey={(p) => `${p.every_tenant ? '*' : p.tenant}/${p.name}`}
        actions={(p) => [
          { label: allowed('PutNetworkPolicy') && (seesAll || !p.every_tenant) ? 'Change…' : 'Look at it', run: () => setOpen({ policy: p }) },
          ...(allowed('DeleteNetworkPolicy') && (seesAll || !p.every_tenant) ? [{ label: 'Delete…', danger: true, run: () => remove(p) }] : []),
        ]}
        empty={{ icon: 'policy', title: 'There are no policies', text: 'A policy in Cilium’s form selects VMs by their labels, and so applies to VMs that are made later, too.' }}
      />
      {open && (
        <Document
          {...open}
          readOnly={!allowed('PutNetworkPolicy') || (open.policy?.every_tenant === true && !seesAll)}
          onClose={() => setOpen(undefined)}
          onStored={async (name) => {
            setOpen(undefined);
            toast(`The policy ${name} is stored.`);
            await refresh();
          }}
        />
      )}
    </Card>
  );
}

function Document({ policy, readOnly, onClose, onStored }: { policy?: NetworkPolicy; readOnly: boolean; onClose: () => void; onStored: (name: string) => Promise<void> }) {
  const owners = useOwners();
  const seesAll = useSeesAll();
  const [begun] = useState(() => JSON.stringify(policy?.document ?? example, null, 2));
  const [text, setText] = useState(begun);
  const [whose, setWhose] = useState('*');
  const [failure, setFailure] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const check = checkJson(text);
  const { close, question } = useDiscard(text !== begun, onClose);
  const store = async () => {
    if (!check.ok) return;
    setBusy(true);
    setFailure(undefined);
    try {
      const stored = await body(api.POST('/api/dataplane/cnp', { params: { query: policy ? ofTenant(policy, seesAll) : owners ? { tenant: whose } : {} }, body: check.value as never }));
      await onStored(stored.name);
    } catch (e) {
      setFailure(e);
      setBusy(false);
    }
  };
  return (
    <>
      <Dialog title={policy ? `Policy ${policy.name}` : 'Add a policy by label'} onClose={close} locked={busy} wide>
        <div className="dialog-body stack">
          <Notice tone="info">A CiliumNetworkPolicy as JSON. What is not supported is refused with its path in the document; the guide has the list. A policy of the same name is replaced.</Notice>
          {!policy && owners && (
            <label className="field">
              <span className="field-label">For</span>
              <select className="input" value={whose} onChange={(e) => setWhose(e.target.value)}>
                {owners.map((o) => (
                  <option key={o.value} value={o.value}>
                    {o.label}
                  </option>
                ))}
              </select>
            </label>
          )}
          <JsonEditor label="Document" text={text} check={check} onChange={setText} />
          {failure !== undefined && <Failure error={failure} />}
        </div>
        <div className="dialog-foot">
          <button type="button" className="btn" disabled={busy} onClick={close}>
            {readOnly ? 'Close' : 'Cancel'}
          </button>
          {!readOnly && (
            <button type="button" className="btn btn-primary" disabled={busy || !check.ok} onClick={() => void store()}>
              {busy ? 'Working…' : 'Store the policy'}
            </button>
          )}
        </div>
      </Dialog>
      {question}
    </>
  );
}

function Decisions() {
  const [verdict, setVerdict] = useParam<'' | 'allowed' | 'denied'>('verdict', '', ['allowed', 'denied']);
  const { data, error, refetch } = useQuery({ queryKey: ['dataplane', 'observe'], queryFn: async ({ signal }) => (await body(api.GET('/api/dataplane/observe', { params: { query: { limit: 500 } }, signal }))) as Observed, refetchInterval: 3_000, retry: false });
  const flows = data?.flows.filter((f) => verdict === '' || f.verdict === verdict);
  return (
    <div className="stack">
      {data && data.silent.length > 0 && <Notice tone="warn">Decisions about {data.silent.join(', ')} are missing: their hosts do not answer.</Notice>}
      <Card
        title="Recent decisions"
        actions={
          <select className="input" aria-label="Verdict" value={verdict} onChange={(e) => setVerdict(e.target.value as typeof verdict)}>
            <option value="">Any verdict</option>
            <option value="allowed">allowed</option>
            <option value="denied">denied</option>
          </select>
        }
        flush
      >
        <Table
          at="flows."
          label="Recent decisions"
          noun="decision"
          columns={[{ id: 'vm', header: 'VM', cell: (f) => <VMLink name={f.vm} tenant={f.tenant} />, sort: (f) => f.vm }, ...flowColumns]}
          pages={wholeList(flows, data ? undefined : (error ?? undefined), () => void refetch())}
          rowKey={(f) => `${f.vm} ${flowKey(f)}`}
          empty={{ icon: 'activity', title: 'Nothing was decided yet', text: 'What begins while a policy is in force is listed here, as samples.' }}
        />
      </Card>
    </div>
  );
}
