/** The hosts that report to this daemon, and their VMs. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { body } from '../ui/client';
import { reason } from '../ui/problem';
import { Card, Tags } from '../ui/facts';
import { Notice } from '../ui/notice';
import { plural } from '../ui/number';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Bar } from '../ui/progress';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { Allowed, api, useMay, type FleetVM, type Node } from './api';
import { mib } from '../ui/size';
import { given } from './format';
import { Share } from './overview';
import { NodeState, nodeText, VMState } from './states';

const refetchInterval = 5_000;

function Used({ all, free, text }: { all: number; free: number; text: (n: number) => string }) {
  const { used, share, over } = given(all, free);
  return (
    <span className="meter">
      <Bar parts={[{ label: 'percent given', value: Math.round(share * 100), tone: over ? 'bad' : 'info' }]} total={100} />
      <span className="muted small">
        {text(used)} of {text(all)}{over ? ', overcommitted' : ''}
      </span>
    </span>
  );
}

const nodeColumns: readonly Column<Node>[] = [
  { id: 'name', header: 'Host', cell: (n) => n.name, sort: (n) => n.name },
  { id: 'state', header: 'State', cell: (n) => <NodeState node={n} />, sort: (n) => nodeText(n).text },
  { id: 'vcpus', header: 'Processors given', cell: (n) => <Used all={n.vcpus} free={n.free_vcpus} text={String} />, sort: (n) => n.free_vcpus, text: () => '' },
  { id: 'memory', header: 'Memory given', cell: (n) => <Used all={n.memory_mib} free={n.free_memory_mib} text={mib} />, sort: (n) => n.free_memory_mib, text: () => '' },
  { id: 'vms', header: 'VMs', cell: (n) => n.vms, sort: (n) => n.vms, text: () => '', end: true },
  { id: 'backends', header: 'Backends', cell: (n) => n.backends.join(', '), text: (n) => n.backends.join(' ') },
  { id: 'labels', header: 'Labels', cell: (n) => <Tags labels={n.labels} />, text: (n) => JSON.stringify(n.labels) },
  { id: 'heartbeat', header: 'Last heartbeat', cell: (n) => <Time at={n.heartbeat_at} />, sort: (n) => n.heartbeat_at, text: () => '' },
  { id: 'version', header: 'Version', cell: (n) => n.version, sort: (n) => n.version, hidden: true },
  { id: 'url', header: 'Address', cell: (n) => <code>{n.url}</code>, sort: (n) => n.url, hidden: true },
];

const vmColumns: readonly Column<FleetVM>[] = [
  { id: 'name', header: 'VM', cell: (v) => v.name, sort: (v) => v.name, text: (v) => `${v.name} ${v.id}` },
  { id: 'node', header: 'Host', cell: (v) => v.node, sort: (v) => v.node },
  { id: 'state', header: 'State', cell: (v) => <VMState state={v.state} />, sort: (v) => v.state },
  { id: 'backend', header: 'Backend', cell: (v) => v.backend, sort: (v) => v.backend },
  { id: 'size', header: 'Size', cell: (v) => `${plural(v.vcpus, 'vCPU')}, ${mib(v.memory_mib)}`, sort: (v) => v.memory_mib },
  { id: 'ips', header: 'Addresses', cell: (v) => v.ips.join(', '), text: (v) => v.ips.join(' ') },
  { id: 'tenant', header: 'Tenant', cell: (v) => v.tenant, sort: (v) => v.tenant },
];

export function Fleet() {
  const vms = useQuery({ queryKey: ['fleet', 'vms'], queryFn: ({ signal }) => body(api.GET('/fleet/vms', { signal })), refetchInterval });
  const unreachable = vms.data?.unreachable_nodes ?? [];
  return (
    <Page title="Fleet" lead="The hosts that report to this daemon, and the VMs of all of them.">
      <div className="stack">
        {unreachable.map((n) => (
          <Notice key={n.node} tone="warn">
            <strong>{n.node} does not answer.</strong> Its VMs are not in the list below: {n.reason}.
          </Notice>
        ))}
        <Allowed operation="ListNodes">
          <Nodes />
        </Allowed>
        <Card title="VMs of all hosts" flush>
          <Table
            label="VMs of all hosts"
            noun="VM"
            columns={vmColumns}
            pages={wholeList(vms.data?.items, vms.error ?? undefined, () => void vms.refetch())}
            rowKey={(v) => `${v.node} ${v.id}`}
            empty={{ icon: 'node', title: unreachable.length ? 'No host that answers has a VM' : 'There are no VMs in the fleet', text: 'VMs of this host are counted here once it reports to a registry.' }}
          />
        </Card>
      </div>
    </Page>
  );
}

function Nodes() {
  const may = useMay();
  const queries = useQueryClient();
  const nodes = useQuery({ queryKey: ['fleet', 'nodes'], queryFn: ({ signal }) => body(api.GET('/fleet/nodes', { signal })), refetchInterval });
  const capacity = useQuery({ queryKey: ['fleet', 'capacity'], queryFn: ({ signal }) => body(api.GET('/fleet/capacity', { signal })), refetchInterval }).data;
  const cordon = async ({ name, cordoned }: Node) => {
    const params = { params: { path: { name } } };
    try {
      await (cordoned ? api.POST('/fleet/nodes/{name}/uncordon', params) : api.POST('/fleet/nodes/{name}/cordon', params));
      toast(cordoned ? `VMs are placed on ${name} again.` : `Nothing new is placed on ${name}, unless it is named.`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await queries.invalidateQueries({ queryKey: ['fleet'] });
  };
  return (
    <>
      {capacity && capacity.nodes > 0 && (
        <Card title={`Given to VMs on ${plural(capacity.healthy_nodes, 'healthy host')}`}>
          <div className="stack">
            <Share label="Processors" all={capacity.vcpus} free={capacity.free_vcpus} />
            <Share label="Memory" all={capacity.memory_mib} free={capacity.free_memory_mib} text={mib} />
          </div>
        </Card>
      )}
      <Card title="Hosts" flush>
        <Table
          label="Hosts"
          noun="host"
          columns={nodeColumns}
          pages={wholeList(nodes.data, nodes.error ?? undefined, () => void nodes.refetch())}
          rowKey={(n) => n.name}
          actions={may('CordonNode') ? (n) => [{ label: n.cordoned ? 'Uncordon' : 'Cordon', run: () => void cordon(n) }] : undefined}
          bulk={
            may('CordonNode')
              ? [
                  { label: 'Cordon', applies: (n: Node) => !n.cordoned, body: 'Nothing new is placed on them, unless they are named. Their VMs keep running.', run: (n: Node) => api.POST('/fleet/nodes/{name}/cordon', { params: { path: { name: n.name } } }), after: () => queries.invalidateQueries({ queryKey: ['fleet'] }) },
                  { label: 'Uncordon', applies: (n: Node) => n.cordoned, body: 'VMs are placed on them again.', run: (n: Node) => api.POST('/fleet/nodes/{name}/uncordon', { params: { path: { name: n.name } } }), after: () => queries.invalidateQueries({ queryKey: ['fleet'] }) },
                ]
              : []
          }
          at="hosts."
          empty={{ icon: 'server', title: 'No host reports here', text: <>Start a daemon with <code>--registry</code> and the address of this one, and it joins.</> }}
        />
      </Card>
    </>
  );
}
