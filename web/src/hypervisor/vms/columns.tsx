/** The columns of the list of VMs. */
import { Tags } from '../../ui/facts';
import { plural } from '../../ui/number';
import { Status } from '../../ui/status';
import type { Column } from '../../ui/table';
import { Time } from '../../ui/time';
import type { VM } from '../api';
import { mib } from '../../ui/size';
import { uptime } from '../format';
import { alive, VMState } from '../states';

export function Agent({ vm }: { vm: Pick<VM, 'agent' | 'state'> }) {
  if (!vm.agent.enabled) return <span className="muted">off</span>;
  if (!alive(vm.state)) return null;
  return vm.agent.connected ? <Status tone="ok">connected</Status> : <Status tone="idle">not connected</Status>;
}

/** How long the VM has been up at the time of the last reading. */
export const upFor = (vm: VM) => uptime(vm, Date.now());

export const vmColumns: readonly Column<VM>[] = [
  { id: 'name', header: 'VM', cell: (v) => v.name, sort: (v) => v.name, text: (v) => `${v.name} ${v.id}` },
  { id: 'state', header: 'State', cell: (v) => <VMState state={v.state} />, sort: (v) => v.state },
  { id: 'backend', header: 'Backend', cell: (v) => v.backend, sort: (v) => v.backend },
  { id: 'size', header: 'Size', cell: (v) => <span className="nowrap">{plural(v.vcpus, 'vCPU')}, {mib(v.memory_mib)}</span>, sort: (v) => v.memory_mib, text: () => '' },
  { id: 'ips', header: 'Addresses', cell: (v) => v.ips.join(', '), text: (v) => v.ips.join(' ') },
  { id: 'agent', header: 'Agent', cell: (v) => <Agent vm={v} />, text: () => '' },
  { id: 'uptime', header: 'Up', cell: upFor, sort: (v) => (upFor(v) && v.started_at ? -Date.parse(v.started_at) : undefined), text: () => '' },
  { id: 'tenant', header: 'Tenant', cell: (v) => v.tenant, sort: (v) => v.tenant },
  { id: 'created', header: 'Created', cell: (v) => <Time at={v.created_at} />, sort: (v) => v.created_at, text: () => '', hidden: true },
  { id: 'image', header: 'Image', cell: (v) => v.image, sort: (v) => v.image, hidden: true },
  { id: 'labels', header: 'Labels', cell: (v) => <Tags labels={v.labels} none="" />, text: (v) => Object.entries(v.labels).map(([k, l]) => `${k}=${l}`).join(' '), hidden: true },
];
