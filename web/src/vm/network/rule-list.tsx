/** The rules of a policy or group: a list, and a form for one of them. */
import { useState } from 'react';
import { useConfirm } from '../../ui/confirm';
import type { FieldSpec } from '../../ui/draft';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { wholeList } from '../../ui/paging';
import type { Schema } from '../../ui/schema';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { schemas, type VMRule } from '../api';
import { portsOf, portsText } from './ports';
import { ofRule, peerText, trafficText } from './rules';

type Direction = 'ingress' | 'egress';

/** A rule with its place. */
interface Row {
  rule: VMRule;
  index: number;
}

/** What the form asks for: the peer is one of three, and ports are written in a line. */
interface Draft extends Omit<VMRule, 'ports'> {
  peer: 'entity' | 'cidr' | 'group';
  ports?: VMRule['ports'];
}

const rule = (((schemas.SetVMPolicy.properties?.['ingress'] as Schema).properties?.['rules'] as Schema).items ?? {}) as Schema;
const schema: Schema = {
  ...rule,
  required: ['action'],
  properties: {
    ...rule.properties,
    peer: { type: 'string', enum: ['entity', 'cidr', 'group'] },
    entity: { type: 'string', enum: ['all', 'world', 'host', 'cluster'], default: 'all' },
    protocol: { type: 'string', enum: ['any', 'tcp', 'udp', 'sctp', 'icmp', 'icmpv6'], default: 'any' },
  },
};

const withPorts = (protocol: unknown) => ['tcp', 'udp', 'sctp'].includes(String(protocol));
const withTypes = (protocol: unknown) => ['icmp', 'icmpv6'].includes(String(protocol));

const fields = (groups: readonly string[], asksDirection: boolean): FieldSpec[] => [
  ...(asksDirection ? [{ name: 'direction', label: 'Direction', options: [{ value: 'ingress', label: 'In: what comes to the VM' }, { value: 'egress', label: 'Out: what the VM sends' }] }] : []),
  { name: 'action', label: 'Action', hint: 'A deny wins over every allow' },
  {
    name: 'peer',
    label: 'Whom',
    hint: 'Where packets come from, or go to',
    options: [
      { value: 'entity', label: 'A kind of peer' },
      { value: 'cidr', label: 'A network' },
      { value: 'group', label: 'A security group' },
    ],
  },
  {
    name: 'entity',
    label: 'Kind of peer',
    hint: '',
    options: [
      { value: 'all', label: 'Everybody' },
      { value: 'world', label: 'The world: neither a VM of the tenant nor a host' },
      { value: 'host', label: 'The hosts' },
      { value: 'cluster', label: 'The VMs of the tenant' },
    ],
    when: (d) => d['peer'] === 'entity',
  },
  { name: 'cidr', label: 'Network', placeholder: '10.0.0.0/8', when: (d) => d['peer'] === 'cidr' },
  { name: 'except', label: 'But for', kind: 'lines', when: (d) => d['peer'] === 'cidr' },
  { name: 'group', label: 'Group', suggestions: groups, when: (d) => d['peer'] === 'group' },
  { name: 'protocol', label: 'Protocol', hint: '' },
  { name: 'ports', label: 'Ports', kind: 'text', placeholder: '22, 80, 8000-8100', hint: 'All, when empty', when: (d) => withPorts(d['protocol']), read: (text) => portsOf(String(text)), show: (ports) => portsText(ports as VMRule['ports']) },
  { name: 'icmp_type', label: 'ICMP type', hint: 'All, when empty', when: (d) => withTypes(d['protocol']) },
  { name: 'icmp_code', label: 'ICMP code', when: (d) => withTypes(d['protocol']) },
  { name: 'description', label: 'Description' },
];

const valuesOf = (r: VMRule | undefined, direction: Direction | undefined) => ({
  action: 'allow',
  direction: direction ?? 'ingress',
  ...r,
  peer: r?.cidr ? 'cidr' : r?.group ? 'group' : 'entity',
});

const columns: readonly Column<Row>[] = [
  { id: 'action', header: 'Action', cell: ({ rule: r }) => <Status tone={r.action === 'deny' ? 'bad' : 'ok'}>{r.action ?? 'allow'}</Status>, text: ({ rule: r }) => r.action ?? 'allow' },
  { id: 'direction', header: 'Direction', cell: ({ rule: r }) => (r.direction === 'egress' ? 'out' : 'in') },
  { id: 'peer', header: 'Whom', cell: ({ rule: r }) => peerText(r) },
  { id: 'traffic', header: 'Traffic', cell: ({ rule: r }) => trafficText(r) },
  { id: 'description', header: 'Description', cell: ({ rule: r }) => r.description ?? '' },
];

export function RuleList({
  title,
  label,
  direction,
  rules,
  groups,
  readOnly,
  empty,
  onChange,
  children,
}: {
  title: string;
  label: string;
  /** The direction of all rules. Without one, each rule has its own. */
  direction?: Direction;
  rules: readonly VMRule[];
  groups: readonly string[];
  readOnly: boolean;
  /** What holds while there are no rules. */
  empty: string;
  /** Stores all rules. */
  onChange: (rules: VMRule[]) => Promise<unknown>;
  children?: React.ReactNode;
}) {
  const confirm = useConfirm();
  const [open, setOpen] = useState<{ index: number; rule?: VMRule }>();
  const rows = rules.map((r, index): Row => ({ rule: r, index }));
  const without = (index: number) => rules.filter((_, i) => i !== index);
  const remove = ({ rule: r, index }: Row) =>
    confirm({
      title: 'Remove this rule?',
      body: (
        <p>
          {r.action ?? 'allow'} {trafficText(r)} {(direction ?? r.direction) === 'egress' ? 'to' : 'from'} {peerText(r)}. Flows that are not allowed any more are cut.
        </p>
      ),
      action: 'Remove the rule',
      danger: true,
      run: () => onChange(without(index)),
      done: 'The rule is removed.',
    });
  return (
    <Card
      title={title}
      actions={
        !readOnly && (
          <button type="button" className="btn btn-small" onClick={() => setOpen({ index: rules.length })}>
            Add a rule
          </button>
        )
      }
      flush
    >
      {children && <div className="card-body">{children}</div>}
      <Table
        brief
        label={label}
        noun="rule"
        columns={columns.filter((c) => direction === undefined || c.id !== 'direction')}
        pages={wholeList(rows)}
        rowKey={(r) => String(r.index)}
        {...(!readOnly && {
          actions: (row: Row) => [
            { label: 'Change…', run: () => setOpen(row) },
            { label: 'Remove…', danger: true, run: () => remove(row) },
          ],
        })}
        empty={{ icon: 'policy', title: 'There are no rules', text: empty }}
      />
      {open && (
        <FormDialog<Draft>
          title={open.rule ? 'Change the rule' : 'Add a rule'}
          two
          wide
          schema={schema}
          fields={fields(groups, direction === undefined)}
          values={valuesOf(open.rule, direction)}
          action={open.rule ? 'Save the rule' : 'Add the rule'}
          onClose={() => setOpen(undefined)}
          onSubmit={async (given) => {
            const { peer: _peer, ...input } = given;
            const changed: VMRule = input;
            if (direction) delete changed.direction;
            try {
              await onChange([...rules.slice(0, open.index), changed, ...rules.slice(open.index + 1)]);
            } catch (e) {
              throw ofRule(e);
            }
            setOpen(undefined);
          }}
        />
      )}
    </Card>
  );
}
