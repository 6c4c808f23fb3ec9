/** Operations in progress, and those that ended within the last day. */
import { useQueryClient } from '@tanstack/react-query';
import { Link } from 'wouter';
import { reason } from '../ui/problem';
import { Card } from '../ui/facts';
import { percent } from '../ui/number';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Bar } from '../ui/progress';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { api, type Operation } from './api';
import { useLive } from './live';
import { operationTitle, OperationState, underWay } from './states';

const columns: readonly Column<Operation>[] = [
  { id: 'kind', header: 'Operation', cell: (o) => operationTitle(o), sort: (o) => operationTitle(o) },
  { id: 'state', header: 'State', cell: (o) => <OperationState operation={o} />, sort: (o) => o.state },
  {
    id: 'progress',
    header: 'Progress',
    cell: (o) => (
      <span className="meter">
        <Bar parts={[{ label: 'percent done', value: Math.round(o.progress * 100), tone: o.state === 'failed' ? 'bad' : 'ok' }]} total={100} />
        <span className="muted small">{percent(o.progress)}</span>
      </span>
    ),
    sort: (o) => o.progress,
    text: () => '',
  },
  { id: 'vm', header: 'VM', cell: (o) => (o.vm_id ? <Link href={`/vms/${o.vm_id}`}>Its page</Link> : null), text: (o) => o.vm_id ?? '' },
  { id: 'created', header: 'Began', cell: (o) => <Time at={o.created_at} />, sort: (o) => o.created_at, text: () => '' },
  { id: 'error', header: 'Error', cell: (o) => o.error, text: (o) => o.error },
];

export function OperationTable({ label, rows, brief = false }: { label: string; rows: readonly Operation[] | undefined; brief?: boolean }) {
  const queries = useQueryClient();
  const cancel = async (o: Operation) => {
    try {
      await api.POST('/v1/operations/{operation}/cancel', { params: { path: { operation: o.id } } });
      toast(`${operationTitle(o)}: asked to end.`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await queries.invalidateQueries({ queryKey: ['live'] });
  };
  return (
    <Table
      brief={brief}
      label={label}
      noun="operation"
      columns={columns}
      pages={wholeList(rows && [...rows])}
      rowKey={(o) => o.id}
      actions={(o) => (underWay(o) ? [{ label: 'Cancel', run: () => void cancel(o), danger: true }] : [])}
      empty={{ icon: 'activity', title: 'Nothing is under way', text: 'Backups, restores, clones, new images and templates are listed here for a day.' }}
    />
  );
}

export function Operations() {
  const { operations } = useLive();
  return (
    <Page title="Operations" lead="What takes long: backups, restores, clones, images, templates. What has ended is listed for a day.">
      <Card flush>
        <OperationTable label="Operations" rows={operations} />
      </Card>
    </Page>
  );
}
