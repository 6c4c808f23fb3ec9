/**
 * An overview of the host: capacity, free resources, VMs by state, operations, and a summary of the
 * fleet.
 */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { body } from '../ui/client';
import { Card, Tile } from '../ui/facts';
import { Empty } from '../ui/notice';
import { count, plural } from '../ui/number';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Bar } from '../ui/progress';
import { Status } from '../ui/status';
import { Table, type Column } from '../ui/table';
import { api, pageLimit, useMay, type Host, type State, type VM } from './api';
import { mib } from '../ui/size';
import { given, left } from './format';
import { useLive } from './live';
import { OperationTable } from './operations';
import { states, underWay, VMState } from './states';

export function Overview() {
  const { host } = useLive();
  return (
    <Page title="Overview" lead={host && `${host.name}, Mainstay ${host.version}`} badge={host && <Health host={host} />}>
      <div className="stack">
        <Tiles host={host} />
        {host && (
          <div className="grid">
            <CapacityCard host={host} />
            <ByState />
          </div>
        )}
        {host && <Backends host={host} />}
        <UnderWay />
      </div>
    </Page>
  );
}

function Health({ host }: { host: Host }) {
  return host.backends.some((b) => b.available) ? <Status tone="ok">can run VMs</Status> : <Status tone="bad">no backend is available</Status>;
}

function useVMs() {
  return useQuery({ queryKey: ['vms', 'all'], queryFn: ({ signal }) => body(api.GET('/v1/vms', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 5_000 });
}

function Tiles({ host }: { host: Host | undefined }) {
  const admin = useMay()('GetCapacity');
  const vms = useVMs().data;
  const { operations } = useLive();
  const fleet = useQuery({ queryKey: ['fleet', 'capacity'], queryFn: ({ signal }) => body(api.GET('/fleet/capacity', { signal })), refetchInterval: 10_000, enabled: admin }).data;
  const waiting = <span className="skeleton" />;
  const running = vms?.filter((v) => v.state === 'running').length ?? 0;
  const failed = vms?.filter((v) => v.state === 'failed').length ?? 0;
  const silent = fleet ? fleet.nodes - fleet.healthy_nodes : 0;
  const busy = operations?.filter(underWay).length;
  return (
    <div className="tiles">
      <Tile href={failed ? '/vms?state=failed' : '/vms?state=running'} label="VMs running" value={vms ? `${count(running)}${vms.length >= pageLimit ? ' or more' : ''}` : waiting} note={vms && (failed ? `${count(failed)} failed` : `of ${count(vms.length)}${vms.length >= pageLimit ? ' or more' : ''}`)} bad={failed > 0} />
      <Tile label="Processors free" {...(host ? left(host.vcpus, host.free_vcpus, count) : { value: waiting })} />
      <Tile label="Memory free" {...(host ? left(host.memory_mib, host.free_memory_mib, mib) : { value: waiting })} />
      <Tile href="/operations" label="Operations" value={busy === undefined ? waiting : count(busy)} note="under way" />
      {admin && <Tile href="/fleet" label="Fleet" value={fleet ? (fleet.nodes ? `${count(fleet.healthy_nodes)} of ${count(fleet.nodes)}` : 'none') : waiting} note={!fleet?.nodes ? 'no host reports here' : silent ? `${plural(silent, 'host')} silent` : `${plural(fleet.vms, 'VM')} in all`} bad={silent > 0} />}
    </div>
  );
}

/** A bar with its numbers next to it. */
export function Share({ label, all, free, text = count }: { label: string; all: number; free: number; text?: (n: number) => string }) {
  const { used, share, over } = given(all, free);
  return (
    <div className="stack-tight">
      <div className="row spread small">
        <span>{label}</span>
        <span className="muted">
          {text(used)} of {text(all)} given{over ? ', overcommitted' : ''}
        </span>
      </div>
      <Bar parts={[{ label: `percent of ${label.toLowerCase()} given`, value: Math.round(share * 100), tone: over ? 'bad' : share > 0.9 ? 'warn' : 'info' }]} total={100} />
    </div>
  );
}

function CapacityCard({ host }: { host: Host }) {
  return (
    <Card title="Given to VMs">
      <div className="stack">
        <Share label="Processors" all={host.vcpus} free={host.free_vcpus} />
        <Share label="Memory" all={host.memory_mib} free={host.free_memory_mib} text={mib} />
      </div>
    </Card>
  );
}

function ByState() {
  const vms = useVMs().data;
  const tally = new Map<State, VM[]>(states.map((s) => [s, vms?.filter((v) => v.state === s) ?? []]));
  return (
    <Card title="VMs by state" actions={<Link href="/vms">All VMs</Link>}>
      {vms?.length === 0 ? (
        <Empty icon="node" title="There are no VMs" action={<Link href="/vms" className="btn btn-primary">Create one</Link>} />
      ) : (
        <ul className="plain stack-tight">
          {[...tally].filter(([, those]) => those.length > 0).map(([state, those]) => (
            <li key={state} className="row spread">
              <Link href={`/vms?state=${state}`}>
                <VMState state={state} />
              </Link>
              <span>{those.length <= 3 ? those.map((v, i) => <span key={v.id}>{i > 0 && ', '}<Link href={`/vms/${v.id}`}>{v.name}</Link></span>) : count(those.length)}</span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

const backendColumns: readonly Column<Host['backends'][number]>[] = [
  { id: 'name', header: 'Backend', cell: (b) => b.name },
  { id: 'state', header: 'State', cell: (b) => (b.available ? <Status tone="ok">available</Status> : <Status tone="idle" icon="ban">not available</Status>) },
  { id: 'version', header: 'Version', cell: (b) => b.version ?? '' },
  { id: 'detail', header: 'Accelerator, or what is missing', cell: (b) => b.detail },
];

function Backends({ host }: { host: Host }) {
  return (
    <Card title="Backends" flush>
      <Table brief label="Backends" noun="backend" columns={backendColumns} pages={wholeList(host.backends)} rowKey={(b) => b.name} empty={{ icon: 'ban', title: 'This build has no backends' }} />
    </Card>
  );
}

function UnderWay() {
  const { operations } = useLive();
  const busy = operations?.filter(underWay) ?? [];
  if (busy.length === 0) return null;
  return (
    <Card title="Under way" actions={<Link href="/operations">All operations</Link>} flush>
      <OperationTable brief label="Operations under way" rows={busy} />
    </Card>
  );
}
