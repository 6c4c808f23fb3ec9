/** A VM: its settings, usage, history, and all actions on it. */
import { useQuery } from '@tanstack/react-query';
import { Link, useLocation } from 'wouter';
import { body, page } from '../../ui/client';
import { ApiError } from '../../ui/problem';
import { Copyable } from '../../ui/copy';
import { sizeText, systemDisk } from '../../ui/disks/state';
import { Card, Facts, Tags } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Empty, Failure, Notice } from '../../ui/notice';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { DateTime, EndTime, Time } from '../../ui/time';
import { Plots, useSamples } from '../../ui/usage/plots';
import { Console, Screen } from '../../ui/viewer/viewer';
import { api, type VM, type VMEvent } from '../api';
import { mib } from '../../ui/size';
import { networkLimits } from '../format';
import { alive, limitable, pendingText, VMState } from '../states';
import { useVMActions } from './actions';
import { Backups } from './backups';
import { CD } from './cd';
import { Agent, upFor } from './columns';
import { Disks, useDisks, useKept } from './disks';
import { Run } from './exec';
import { useGuest } from './guest';
import { SerialLog } from './log';
import { measured } from './measured';
import { Snapshots } from './snapshots';

const above = [{ title: 'VMs', href: '/vms' }];

export function VMDetail({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const { actions, first, dialog } = useVMActions(() => navigate('/vms'));
  const query = useQuery({ queryKey: ['vms', 'one', id], queryFn: ({ signal }) => body(api.GET('/v1/vms/{id}', { params: { path: { id } }, signal })), refetchInterval: 2_000 });
  const vm = query.data;
  const reading = vm !== undefined && alive(vm.state);
  const samples = useSamples(measured(id), reading);
  const kept = useKept(vm);
  const gone = query.error instanceof ApiError && query.error.status === 404;
  if (!vm || gone) {
    return (
      <Page title="VM" above={above}>
        {gone ? (
          <Empty icon="search" title="There is no such VM here" action={<Link href="/vms" className="btn btn-primary">All VMs</Link>}>
            It may have been deleted, or have come to the end of its life.
          </Empty>
        ) : query.error ? (
          <Failure error={query.error} retry={() => void query.refetch()} />
        ) : (
          <p className="muted">Loading…</p>
        )}
      </Page>
    );
  }
  const verb = first(vm);
  return (
    <Page
      title={vm.name}
      above={above}
      badge={<VMState state={vm.state} />}
      lead={`${vm.backend}, ${plural(vm.vcpus, 'vCPU')}, ${mib(vm.memory_mib)}${reading ? `, up ${upFor(vm)}` : ''}`}
      actions={
        <>
          {verb && (
            <button type="button" className={`btn ${reading ? '' : 'btn-primary'}`} onClick={verb.run}>
              {verb.label}
            </button>
          )}
          <Menu label={`Actions for ${vm.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(vm)} />
        </>
      }
    >
      <div className="stack">
        {vm.last_error && (
          <Notice tone="bad">
            <strong>It failed.</strong> {vm.last_error}
          </Notice>
        )}
        <Tabs
          label={`Parts of ${vm.name}`}
          inAddress
          tabs={[
            { id: 'overview', label: 'Overview', content: () => <Summary vm={vm} plots={<Plots of={measured(vm.id)} samples={samples} reading={reading} />} /> },
            { id: 'console', label: 'Console', content: () => <GuestConsole vm={vm} /> },
            { id: 'log', label: 'Serial log', content: () => <SerialLog vm={vm} /> },
            { id: 'screen', label: 'Screen', content: () => <GuestScreen vm={vm} /> },
            { id: 'run', label: 'Run a program', content: () => <Run vm={vm} /> },
            {
              id: 'disks',
              label: 'Disks',
              content: () => (
                <div className="stack">
                  <Disks vm={vm} kept={kept} />
                  <CD vm={vm} />
                </div>
              ),
            },
            { id: 'snapshots', label: 'Snapshots', content: () => <Snapshots vm={vm} /> },
            { id: 'backups', label: 'Backups', content: () => <Backups vm={vm} /> },
            { id: 'events', label: 'Events', content: () => <Events vm={vm} /> },
          ]}
        />
      </div>
      {dialog}
    </Page>
  );
}

function Summary({ vm, plots }: { vm: VM; plots: React.ReactNode }) {
  return (
    <div className="beside">
      {plots}
      <div className="grid">
        <Card title="Machine">
          <Facts
            facts={[
              ['Image', vm.image ? <code key="i">{vm.image}</code> : <span key="i" className="muted">{vm.kernel === undefined ? 'none: the disk was empty when the VM was made' : 'none'}</span>],
              vm.kernel !== undefined && ['Kernel', <code key="k">{vm.kernel}</code>],
              ['System disk', <SystemDisk key="d" vm={vm} />],
              vm.disks.length > 0 && ['Other disks', vm.disks.map((d) => `${d.name} (${sizeText({ size: d.size_gib })})`).join(', ')],
              vm.cd !== undefined && ['CD', <code key="cd">{vm.cd.image}</code>],
              vm.firmware !== undefined && ['Firmware', vm.firmware],
              ['Network', vm.mac ? vm.network.mode : <span key="n" className="muted">none</span>],
              limitable(vm) && ['Network limits', networkLimits(vm.network_limits ?? {}) || <span key="l" className="muted">none</span>],
              vm.mac !== '' && ['MAC', <code key="m">{vm.mac}</code>],
              ['Addresses', vm.ips.length ? vm.ips.map((ip) => <Copyable key={ip} text={ip} />) : <span key="a" className="muted">none known</span>],
              vm.pending.length > 0 && ['Next start', `changes ${vm.pending.map(pendingText).join(', ')}`],
              ['Agent', <span key="g"><Agent vm={vm} /> {vm.agent.version}</span>],
            ]}
          />
        </Card>
        <Card title="Life">
          <Facts
            facts={[
              ['Tenant', vm.tenant || <span key="t" className="muted">none</span>],
              ['Labels', <Tags key="l" labels={vm.labels} />],
              ['Starts with the host', vm.autostart ? 'yes' : 'no'],
              ['Made', <DateTime key="c" at={vm.created_at} />],
              vm.started_at !== undefined && ['Started', <Time key="s" at={vm.started_at} />],
              alive(vm.state) && ['Began with', <Beginning key="b" vm={vm} />],
              vm.expires_at !== undefined && ['Is deleted', <EndTime key="e" at={vm.expires_at} />],
              vm.pid !== undefined && ['Process', vm.pid],
              ['ID', <Copyable key="i" text={vm.id} />],
            ]}
          />
        </Card>
      </div>
    </div>
  );
}

function SystemDisk({ vm }: { vm: VM }) {
  const { data } = useDisks(vm.id);
  const disk = data?.find((d) => d.name === systemDisk);
  if (disk) return `${sizeText(disk)}, ${vm.storage}`;
  return <span className="muted">{data ? 'none' : 'unknown'}</span>;
}

/** Whether the VM's process started from a template, or why it booted. */
function Beginning({ vm }: { vm: Pick<VM, 'template' | 'booted_because'> }) {
  if (vm.template !== undefined) {
    return (
      <p>
        the template <Link href={`/templates?filter=${encodeURIComponent(vm.template)}`}>{vm.template}</Link>
      </p>
    );
  }
  return vm.booted_because === undefined ? 'a boot' : `a boot: ${vm.booted_because}`;
}

const eventColumns: readonly Column<VMEvent>[] = [
  { id: 'kind', header: 'Event', cell: (e) => e.kind, sort: (e) => e.kind },
  { id: 'at', header: 'Time', cell: (e) => <DateTime at={e.at} />, sort: (e) => e.at, text: () => '' },
  { id: 'message', header: 'Message', cell: (e) => e.message, text: (e) => e.message },
  { id: 'actor', header: 'By', cell: (e) => e.actor ?? '', sort: (e) => e.actor ?? '' },
];

function Events({ vm }: { vm: VM }) {
  const pages = usePages(['vms', 'events', vm.id], (cursor, signal) => page(api.GET('/v1/vms/{id}/events', { params: { path: { id: vm.id }, query: { cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Card flush>
      <Table at="events." label={`Events of ${vm.name}`} noun="event" columns={eventColumns} pages={pages} rowKey={(e) => `${e.at} ${e.kind} ${e.message}`} empty={{ icon: 'activity', title: 'Nothing has happened to it yet' }} />
    </Card>
  );
}

function GuestConsole({ vm }: { vm: VM }) {
  return <Console guest={useGuest(vm)} runs={alive(vm.state)} state={vm.state} />;
}

function GuestScreen({ vm }: { vm: VM }) {
  return <Screen guest={useGuest(vm)} runs={alive(vm.state)} state={vm.state} />;
}
