/** The network of one VM: its policy, what holds in all, what was decided. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../../ui/client';
import { Card, Facts } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Failure, Notice } from '../../ui/notice';
import { count, plural } from '../../ui/number';
import { wholeList } from '../../ui/paging';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { Time } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, pageLimit, useMay, type DocumentRule, type RuleCount, type VM, type VMPolicy, type VMPolicySpec, type VMRule } from '../api';
import { at } from '../links';
import { PolicyStatus } from '../states';
import { Flows } from './flows';
import { RuleList } from './rule-list';
import { documentText } from './rules';

type Direction = 'ingress' | 'egress';

/** A policy as it is sent: without what the service adds. */
const specOf = ({ groups, ingress, egress }: VMPolicy): VMPolicySpec => ({ groups, ingress, egress });

export function NetworkTab({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const readOnly = !useMay()('SetVMPolicy');
  const key = ['vms', 'policy', vm.id];
  const policy = useQuery({ queryKey: key, queryFn: ({ signal }) => body(api.GET('/api/vms/{name}/dataplane/policy', { ...at(vm), signal })), refetchInterval: 3_000 });
  const groups = useGroups(vm.tenant);
  const [asking, setAsking] = useState(false);
  if (!policy.data) {
    return (
      <Card title="Network policy">
        {policy.error ? <Failure error={policy.error} retry={() => void policy.refetch()} /> : <span className="skeleton" />}
      </Card>
    );
  }
  const p = policy.data;
  const store = async (spec: VMPolicySpec) => {
    const stored = await body(api.POST('/api/vms/{name}/dataplane/policy', { ...at(vm), body: spec }));
    queries.setQueryData(key, stored);
    toast(stored.status === 'applied' ? `The policy of ${vm.name} is in force.` : `The policy of ${vm.name} is stored: ${stored.status}.`, stored.status === 'applied' ? 'ok' : 'warn');
    await queries.invalidateQueries({ queryKey: ['vms'] });
  };
  const list = (direction: Direction) => {
    const rules = p[direction].rules ?? [];
    const usual = p[direction].default;
    return (
      <RuleList
        title={direction === 'ingress' ? 'In: what comes to it' : 'Out: what it sends'}
        label={direction === 'ingress' ? 'Rules for what comes in' : 'Rules for what goes out'}
        direction={direction}
        rules={rules}
        groups={groups}
        readOnly={readOnly}
        empty={usual === 'deny' ? 'Everything is denied, unless another policy allows it.' : 'This policy does not restrict this direction. Others may.'}
        onChange={(changed: VMRule[]) => store({ ...specOf(p), [direction]: { ...p[direction], rules: changed } })}
      >
        <span className="muted">Otherwise: {usual ?? (rules.length ? 'deny, since there are rules' : 'allow, unless a group of the VM has rules')}.</span>
      </RuleList>
    );
  };
  return (
    <div className="stack">
      {vm.network.mode !== 'bridge' && (
        <Notice tone="warn">
          This VM has {vm.network.mode === 'none' ? 'no network' : 'a network of its own'}: the hypervisor enforces policies on bridges only. What is set here takes effect for nothing.
        </Notice>
      )}
      <Card
        title="Network policy"
        actions={
          !readOnly && (
            <button type="button" className="btn btn-primary" onClick={() => setAsking(true)}>
              Change defaults and groups
            </button>
          )
        }
      >
        <Facts
          facts={[
            ['State', <PolicyStatus key="s" state={p.status} />],
            p.reason !== '' && ['Why', p.reason],
            ['Security groups', p.groups.length ? p.groups.join(', ') : <span key="g" className="muted">none</span>],
            p.updated !== undefined && ['Changed', <Time key="u" at={p.updated} />],
          ]}
        />
      </Card>
      <Tabs
        label="Views of the network"
        tabs={[
          { id: 'rules', label: 'Its own rules', content: () => <div className="stack">{list('ingress')}{list('egress')}</div> },
          { id: 'effective', label: 'What holds in all', content: () => <Effective vm={vm} /> },
          { id: 'counters', label: 'Counters', content: () => <Counters vm={vm} /> },
          { id: 'flows', label: 'Decisions', content: () => <Flows vm={vm} /> },
        ]}
      />
      {asking && <Defaults vm={vm} policy={p} groups={groups} onClose={() => setAsking(false)} store={store} />}
    </div>
  );
}

/** The names of the groups that VMs of a tenant can be in. */
function useGroups(tenant: string | undefined): string[] {
  const groups = useQuery({ queryKey: ['groups', 'names'], queryFn: ({ signal }) => body(api.GET('/api/dataplane/groups', { params: { query: { limit: pageLimit } }, signal })) });
  return [...new Set(groups.data?.filter((g) => g.every_tenant || g.tenant === (tenant ?? '')).map((g) => g.name))].sort();
}

const usual: Schema = { type: 'string', enum: ['', 'allow', 'deny'], default: '' };
const schema: Schema = { type: 'object', properties: { groups: { type: 'array', items: { type: 'string' } }, ingress: usual, egress: usual } };
const choices = [
  { value: '', label: 'As its rules say: deny if there are any' },
  { value: 'allow', label: 'Allow' },
  { value: 'deny', label: 'Deny' },
];

interface DefaultsInput {
  groups?: string[];
  ingress?: 'allow' | 'deny';
  egress?: 'allow' | 'deny';
}

function Defaults({ vm, policy: p, groups, onClose, store }: { vm: VM; policy: VMPolicy; groups: readonly string[]; onClose: () => void; store: (spec: VMPolicySpec) => Promise<void> }) {
  const names = [...new Set([...groups, ...p.groups])].sort();
  const side = (direction: Direction, given: 'allow' | 'deny' | undefined) => ({ rules: p[direction].rules ?? [], ...(given && { default: given }) });
  return (
    <FormDialog<DefaultsInput>
      title={`Network policy of ${vm.name}`}
      schema={schema}
      fields={[
        { name: 'ingress', label: 'What comes in and no rule matches', options: choices },
        { name: 'egress', label: 'What goes out and no rule matches', options: choices },
        { name: 'groups', label: 'Security groups', kind: 'several', keepEmpty: true, options: names.map((g) => ({ value: g, label: g })), hint: 'Their rules apply to this VM, too' },
      ]}
      values={{ groups: p.groups, ingress: p.ingress.default, egress: p.egress.default }}
      preview={(input) => <Notice tone="info">{input.ingress === 'deny' ? 'Only what a rule or a group allows reaches the VM. Answers to what it asked for pass, and so do ARP, DHCP and DNS with the host.' : 'Flows that are not allowed any more are cut; those that still are go on.'}</Notice>}
      action="Save"
      onClose={onClose}
      onSubmit={async (input) => {
        await store({ groups: input.groups ?? [], ingress: side('ingress', input.ingress), egress: side('egress', input.egress) });
        onClose();
      }}
    />
  );
}

interface Row {
  direction: Direction;
  rule: DocumentRule;
}

const effectiveColumns: readonly Column<Row>[] = [
  { id: 'name', header: 'Rule', cell: ({ rule: r }) => <code>{r.name}</code>, sort: ({ rule: r }) => r.name },
  { id: 'direction', header: 'Direction', cell: (r) => (r.direction === 'ingress' ? 'in' : 'out'), sort: (r) => r.direction },
  { id: 'action', header: 'Action', cell: ({ rule: r }) => <Status tone={r.action === 'deny' ? 'bad' : 'ok'}>{r.action}</Status>, sort: ({ rule: r }) => r.action },
  { id: 'peers', header: 'Whom', cell: ({ rule: r }) => documentText(r).peers, text: ({ rule: r }) => documentText(r).peers },
  { id: 'ports', header: 'Traffic', cell: ({ rule: r }) => documentText(r).ports, text: ({ rule: r }) => documentText(r).ports },
];

function Effective({ vm }: { vm: VM }) {
  const { data, error, refetch } = useQuery({ queryKey: ['vms', 'effective', vm.id], queryFn: ({ signal }) => body(api.GET('/api/vms/{name}/dataplane/effective', { ...at(vm), signal })), refetchInterval: 5_000 });
  if (!data) return <Card>{error ? <Failure error={error} retry={() => void refetch()} /> : <span className="skeleton" />}</Card>;
  const rows = (['ingress', 'egress'] as const).flatMap((direction) => (data.policy?.[direction].rules ?? []).map((rule): Row => ({ direction, rule })));
  return (
    <div className="stack">
      {data.notes.length > 0 && (
        <Notice tone="info">
          <ul className="plain">
            {data.notes.map((n) => (
              <li key={n}>{n}</li>
            ))}
          </ul>
        </Notice>
      )}
      <Card title="All policies of the VM as one">
        <Facts
          facts={[
            ['State', <PolicyStatus key="s" state={data.status} />],
            ['What comes in and no rule matches', data.policy?.ingress.default ?? 'allow'],
            ['What goes out and no rule matches', data.policy?.egress.default ?? 'allow'],
            ['Comes from', data.sources.length ? data.sources.map((s) => `${s.kind === 'vm' ? 'its own policy' : `${s.kind === 'group' ? 'group' : 'policy'} ${s.name}`} (${plural(s.rules, 'rule')})`).join(', ') : <span key="n" className="muted">no policy applies</span>],
            ['Rules', `${count(data.rules)} of at most ${count(data.limit)}`],
          ]}
        />
      </Card>
      <Card flush>
        <Table at="effective." label={`What holds for ${vm.name}`} noun="rule" columns={effectiveColumns} pages={wholeList(rows)} rowKey={(r) => `${r.direction} ${r.rule.name}`} empty={{ icon: 'policy', title: data.policy ? 'No rule applies: the defaults hold' : 'No policy applies: everything is allowed' }} />
      </Card>
    </div>
  );
}

const counterColumns: readonly Column<RuleCount>[] = [
  { id: 'rule', header: 'Rule', cell: (r) => <code>{r.rule}</code> },
  { id: 'direction', header: 'Direction', cell: (r) => (r.direction === 'ingress' ? 'in' : 'out') },
  { id: 'action', header: 'Action', cell: (r) => r.action },
  { id: 'packets', header: 'Packets', cell: (r) => count(r.packets), end: true },
  { id: 'bytes', header: 'Bytes', cell: (r) => bytes(r.bytes), end: true },
];

function Counters({ vm }: { vm: VM }) {
  const { data, error, refetch } = useQuery({ queryKey: ['vms', 'counters', vm.id], queryFn: ({ signal }) => body(api.GET('/api/vms/{name}/dataplane/stats', { ...at(vm), signal })), refetchInterval: 3_000, retry: false });
  if (!data) return <Card>{error ? <Failure error={error} retry={() => void refetch()} /> : <span className="skeleton" />}</Card>;
  const defaults = (['ingress', 'egress'] as const).flatMap((direction): RuleCount[] =>
    (['allowed', 'denied'] as const).map((verdict) => ({ direction, rule: 'no rule matched', action: verdict === 'allowed' ? 'allow' : 'deny', ...data.defaults[direction][verdict] })),
  );
  return (
    <Card title="What the policy has decided" actions={data.since !== undefined && <span className="muted small">since <Time at={data.since} /></span>} flush>
      <div className="card-body">
        <Facts
          facts={[
            ['Allowed', `${plural(data.allowed.packets, 'packet')}, ${bytes(data.allowed.bytes)}`],
            ['Denied', `${plural(data.denied.packets, 'packet')}, ${bytes(data.denied.bytes)}`],
          ]}
        />
      </div>
      <Table brief label={`Counters of ${vm.name}`} noun="counter" columns={counterColumns} pages={wholeList([...data.rules, ...defaults])} rowKey={(r) => `${r.direction} ${r.rule} ${r.action}`} empty={{ icon: 'activity', title: 'Nothing was counted yet' }} />
    </Card>
  );
}
