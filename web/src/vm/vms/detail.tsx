/** A VM: its settings, usage, history, and all actions on it. */
import { useQuery } from '@tanstack/react-query';
import { Link, useLocation } from 'wouter';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { sizeText } from '../../ui/disks/state';
import { Card, Facts, Tags } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Empty, Failure, Notice } from '../../ui/notice';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { ApiError } from '../../ui/problem';
import { mib } from '../../ui/size';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { DateTime, Time } from '../../ui/time';
import { Plots, useSamples } from '../../ui/usage/plots';
import { Console, Screen } from '../../ui/viewer/viewer';
import { api, useMay, type VM, type VMEvent } from '../api';
import { VMBackups } from '../backups/of-vm';
import { Busy } from '../jobs';
import { at, tenantIn } from '../links';
import { forwardText } from '../network/forwards';
import { NetworkTab } from '../network/of-vm';
import { alive, pendingText, VMState } from '../states';
import { useVMActions } from './actions';
import { CD } from './cd';
import { TagList } from './columns';
import { Disks } from './disks';
import { useGuest } from './guest';
import { measured } from './measured';
import { Snapshots } from './snapshots';

const above = [{ title: 'VMs', href: '/vms' }];

export function VMDetail({ name }: { name: string }) {
  const [, navigate] = useLocation();
  const [address] = useParam('tenant', '');
  const opens = useMay()('CreateTicket');
  const { actions, first, dialog } = useVMActions(() => navigate('/vms'));
  const query = useQuery({
    queryKey: ['vms', 'one', name, address],
    queryFn: ({ signal }) => body(api.GET('/api/vms/{name}', { params: { path: { name }, query: tenantIn(address) }, signal })),
    refetchInterval: 2_000,
  });
  const vm = query.data;
  const gone = query.error instanceof ApiError && query.error.status === 404;
  if (!vm || gone) {
    return (
      <Page title="VM" above={above}>
        {gone ? (
          <Empty icon="search" title="There is no such VM here" action={<Link href="/vms" className="btn btn-primary">All VMs</Link>}>
            It may have been deleted or renamed, or belong to another tenant.
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
      badge={<VMState vm={vm} />}
      lead={`${vm.image}, ${plural(vm.cpus, 'vCPU')}, ${mib(vm.memory)}${vm.disk ? `, ${vm.disk} GiB of disk` : ''}`}
      actions={
        <>
          {verb && (
            <button type="button" className={`btn ${alive(vm) ? '' : 'btn-primary'}`} onClick={verb.run}>
              {verb.label}
            </button>
          )}
          {actions(vm).length > 0 && <Menu label={`Actions for ${vm.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(vm)} />}
        </>
      }
    >
      <div className="stack">
        {vm.job && <Busy key={vm.job.id} id={vm.job.id} kind={vm.job.kind} name={vm.name} />}
        {vm.unreachable && (
          <Notice tone="warn">
            <strong>Its host does not answer.</strong> What is shown was so when it last did. The VM may run on without this service.
          </Notice>
        )}
        {vm.state === 'missing' && (
          <Notice tone="bad">
            <strong>The hypervisor does not know this VM any more.</strong> When it has the VM again, for example because its data folder was mounted late, the VM is what it was.
          </Notice>
        )}
        {vm.last_error && (
          <Notice tone="bad">
            <strong>{vm.provisioned ? 'It failed.' : 'It could not be made.'}</strong> {vm.last_error}
            {!vm.provisioned && ' The next start tries again.'}
          </Notice>
        )}
        {vm.pending.length > 0 && <Notice tone="info">A change of {pendingText(vm)} waits for the next start.</Notice>}
        <Tabs
          label={`Parts of ${vm.name}`}
          inAddress
          tabs={[
            { id: 'overview', label: 'Overview', content: () => <Summary vm={vm} /> },
            {
              id: 'disks',
              label: 'Disks',
              content: () => (
                <div className="stack">
                  <Disks vm={vm} />
                  <CD vm={vm} />
                </div>
              ),
            },
            { id: 'snapshots', label: 'Snapshots', content: () => <Snapshots vm={vm} /> },
            { id: 'backups', label: 'Backups', content: () => <VMBackups vm={vm} /> },
            { id: 'network', label: 'Network', content: () => <NetworkTab vm={vm} /> },
            ...(opens ? [{ id: 'console', label: 'Console', content: () => <GuestConsole vm={vm} /> }, { id: 'screen', label: 'Screen', content: () => <GuestScreen vm={vm} /> }] : []),
            { id: 'events', label: 'Events', content: () => <Events vm={vm} /> },
          ]}
        />
      </div>
      {dialog}
    </Page>
  );
}

function GuestConsole({ vm }: { vm: VM }) {
  return <Console guest={useGuest(vm)} runs={alive(vm)} state={vm.state} />;
}

function GuestScreen({ vm }: { vm: VM }) {
  return <Screen guest={useGuest(vm)} runs={alive(vm)} state={vm.state} />;
}

const networks = { none: 'none', user: 'its own, behind the host', bridge: 'a bridge of the host' } as const;

function Summary({ vm }: { vm: VM }) {
  const reading = alive(vm);
  const samples = useSamples(measured(vm), reading);
  return (
    <div className="beside">
      <Plots of={measured(vm)} samples={samples} reading={reading} />
      <div className="grid">
        <Card title="Machine">
          <Facts
            facts={[
              ['Image', <code key="i">{vm.image}</code>],
              ['Disk', vm.disk ? `${vm.disk} GiB` : <span key="d" className="muted">not known yet: the image decides</span>],
              vm.disks.length > 0 && ['Other disks', vm.disks.map((d) => `${d.name} (${sizeText(d)})`).join(', ')],
              vm.cd !== undefined && vm.cd !== '' && ['CD', <code key="cd">{vm.cd}</code>],
              ['Backend', vm.backend],
              ['Network', `${networks[vm.network.mode]}${vm.network.bridge ? ` (${vm.network.bridge})` : ''}`],
              (vm.network.forwards?.length ?? 0) > 0 && ['Ports of the host', <ForwardList key="f" vm={vm} />],
              vm.mac !== '' && ['MAC', <code key="m">{vm.mac}</code>],
              ['Addresses', vm.ips.length ? vm.ips.map((ip) => <Copyable key={ip} text={ip} />) : <span key="a" className="muted">none known</span>],
              ['Agent', <Agent key="g" vm={vm} />],
              vm.node !== '' && ['Host', vm.node],
            ]}
          />
        </Card>
        <Card title="Life">
          <Facts
            facts={[
              vm.description !== '' && ['Description', vm.description],
              ['Tenant', vm.tenant ?? <span key="t" className="muted">none</span>],
              ['Tags', vm.tags.length ? <TagList key="g" tags={vm.tags} /> : <span key="g" className="muted">none</span>],
              ['Labels', <Tags key="l" labels={vm.labels} />],
              ['Starts with its host', vm.autostart ? 'yes' : 'no'],
              ['Protected', vm.protected ? 'yes, it cannot be deleted' : 'no'],
              ['Made', <DateTime key="c" at={vm.created} />],
              vm.started !== undefined && ['Started', <Time key="s" at={vm.started} />],
              ['ID', <Copyable key="i" text={vm.id} />],
            ]}
          />
        </Card>
      </div>
    </div>
  );
}

/** Each port of the host with the guest's that it leads to. */
function ForwardList({ vm }: { vm: VM }) {
  return (
    <ul className="plain">
      {vm.network.forwards?.map((f) => (
        <li key={forwardText(f)}>
          <code>
            {f.host_address}:{f.host_port}
          </code>{' '}
          leads to {f.protocol} port {f.guest_port}
        </li>
      ))}
    </ul>
  );
}

function Agent({ vm }: { vm: VM }) {
  // What an agent said last is not known to be so while it cannot be asked.
  if (!alive(vm) || !vm.agent) return <span className="muted">not known</span>;
  return vm.agent.connected ? (
    <>
      <Status tone="ok">connected</Status> {vm.agent.version}
    </>
  ) : (
    <Status tone="idle">not connected</Status>
  );
}

const eventColumns: readonly Column<VMEvent>[] = [
  { id: 'kind', header: 'Event', cell: (e) => e.kind, sort: (e) => e.kind },
  { id: 'at', header: 'Time', cell: (e) => <DateTime at={e.at} />, sort: (e) => e.at, text: () => '' },
  { id: 'message', header: 'Message', cell: (e) => e.message, text: (e) => e.message },
  { id: 'actor', header: 'By', cell: (e) => e.actor, sort: (e) => e.actor },
];

function Events({ vm }: { vm: VM }) {
  const { path, query } = at(vm).params;
  const pages = usePages(['vms', 'events', vm.id], (cursor, signal) => page(api.GET('/api/vms/{name}/events', { params: { path, query: { ...query, cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Card flush>
      <Table at="events." label={`Events of ${vm.name}`} noun="event" columns={eventColumns} pages={pages} rowKey={(e) => String(e.id)} empty={{ icon: 'activity', title: 'Nothing has happened to it yet' }} />
    </Card>
  );
}
