/** Decisions of network policies, as samples. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { wholeList } from '../../ui/paging';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { Clock } from '../../ui/time';
import { api, type Flow, type VM } from '../api';
import { at } from '../links';

const endText = (e: Flow['source']) => `${e.address}${e.port === undefined ? '' : `:${e.port}`}${e.vm ? ` (${e.vm})` : ''}`;

export const flowColumns: readonly Column<Flow>[] = [
  { id: 'time', header: 'Time', cell: (f) => <Clock at={f.time} />, sort: (f) => f.time, text: () => '' },
  { id: 'verdict', header: 'Verdict', cell: (f) => <Status tone={f.verdict === 'allowed' ? 'ok' : 'bad'}>{f.verdict}</Status>, sort: (f) => f.verdict },
  { id: 'direction', header: 'Direction', cell: (f) => (f.direction === 'ingress' ? 'in' : 'out'), sort: (f) => f.direction },
  { id: 'source', header: 'From', cell: (f) => <span className="mono small">{endText(f.source)}</span>, text: (f) => endText(f.source) },
  { id: 'destination', header: 'To', cell: (f) => <span className="mono small">{endText(f.destination)}</span>, text: (f) => endText(f.destination) },
  { id: 'protocol', header: 'Protocol', cell: (f) => f.protocol, sort: (f) => f.protocol },
  { id: 'rule', header: 'By', cell: (f) => f.rule || 'the default', text: (f) => f.rule },
];

export const flowKey = (f: Flow) => `${f.time} ${endText(f.source)} ${endText(f.destination)} ${f.protocol} ${f.direction}`;

export function Flows({ vm }: { vm: VM }) {
  const { path, query } = at(vm).params;
  const flows = useQuery({ queryKey: ['vms', 'flows', vm.id], queryFn: ({ signal }) => body(api.GET('/api/vms/{name}/dataplane/flows', { params: { path, query: { ...query, limit: 200 } }, signal })), refetchInterval: 3_000, retry: false });
  return (
    <Card title="Recent decisions" flush>
      <Table
        at="flows."
        label={`Decisions about ${vm.name}`}
        noun="decision"
        columns={flowColumns}
        pages={wholeList(flows.data, flows.data ? undefined : (flows.error ?? undefined), () => void flows.refetch())}
        rowKey={flowKey}
        empty={{ icon: 'activity', title: 'Nothing was decided yet', text: 'What begins while a policy is in force is listed here, as samples.' }}
      />
    </Card>
  );
}
