/** The storage systems that the gateway uses, how they do and how full they are. */
import { useState } from 'react';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Bar } from '../../ui/progress';
import { bytes } from '../../ui/size';
import { Table, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, schemas, type Backend, type BackendSpec, type Cluster } from '../api';
import { backendPath, useClusters } from '../links';
import { useRefresh } from '../live';
import { BackendState, backendText, Health, worst } from '../states';
import { useBackendActions } from './actions';

/** How full the clusters of a backend are. */
export function Fill({ clusters }: { clusters: readonly Pick<Cluster, 'used_capacity_bytes' | 'raw_capacity_bytes'>[] }) {
  const [used, all] = clusters.reduce(([u, r], c) => [u + c.used_capacity_bytes, r + c.raw_capacity_bytes], [0, 0]);
  if (all === 0) return <span className="muted">not known</span>;
  return (
    <span className="meter">
      <Bar parts={[{ label: 'percent used', value: Math.round((100 * used) / all), tone: used > 0.85 * all ? 'bad' : used > 0.75 * all ? 'warn' : 'info' }]} total={100} />
      <span className="muted small">
        {bytes(used)} of {bytes(all)}
      </span>
    </span>
  );
}

const columnsWith = (clusters: readonly Cluster[]): readonly Column<Backend>[] => {
  const of = (b: Backend) => clusters.filter((c) => c.backend_id === b.id);
  const health = (b: Backend) => worst(of(b).map((c) => c.health));
  return [
    { id: 'name', header: 'Backend', cell: (b) => b.name, sort: (b) => b.name },
    { id: 'state', header: 'State', cell: (b) => <BackendState backend={b} />, sort: (b) => backendText(b), text: (b) => `${backendText(b)} ${b.last_error}` },
    {
      id: 'health',
      header: 'Health',
      cell: (b) => {
        const condition = health(b);
        return condition ? <Health condition={condition} /> : <span className="muted">not known</span>;
      },
      sort: (b) => health(b) ?? '',
    },
    { id: 'used', header: 'Used', cell: (b) => <Fill clusters={of(b)} />, text: () => '' },
    { id: 'type', header: 'Type', cell: (b) => b.backend_type, sort: (b) => b.backend_type },
    { id: 'mode', header: 'Mode', cell: (b) => b.mode.replaceAll('_', ' '), sort: (b) => b.mode, hidden: true },
    { id: 'discovered', header: 'Discovered', cell: (b) => <Time at={b.discovered_at} />, sort: (b) => b.discovered_at, text: () => '' },
    { id: 'error', header: 'Error', cell: (b) => b.last_error, text: (b) => b.last_error },
  ];
};

export function Backends() {
  const [adding, setAdding] = useState(false);
  const refresh = useRefresh();
  const clusters = useClusters().data ?? [];
  const { actions } = useBackendActions();
  const pages = usePages(['backends', 'list'], (cursor, signal) => page(api.GET('/backends', { params: { query: { cursor } }, signal })));
  const add = (
    <Allowed operation="CreateBackend">
      <button type="button" className="btn btn-primary" onClick={() => setAdding(true)}>
        Add a backend
      </button>
    </Allowed>
  );
  return (
    <Page title="Backends" lead="The storage systems that volumes are made in. Each is looked at once a minute." actions={add}>
      <Card flush>
        <Table
          label="Backends"
          noun="backend"
          columns={columnsWith(clusters)}
          pages={pages}
          rowKey={(b) => b.id}
          href={backendPath}
          actions={actions}
          empty={{ icon: 'server', title: 'There are no backends', text: 'A backend is a storage system that the settings of the gateway name.', action: add }}
        />
      </Card>
      {adding && (
        <FormDialog<BackendSpec>
          title="Add a backend"
          schema={schemas.CreateBackend}
          fields={[
            { name: 'name', label: 'Name', hint: 'Unique. Policies name it' },
            { name: 'backend_type', label: 'Type', hint: 'nfs is a folder of the gateway’s host, such as a mounted export' },
            { name: 'mode', label: 'Mode', hint: 'What is read only is shown, and never changed' },
            { name: 'connection_ref', label: 'Entry of the settings', hint: 'Of ceph-clusters, directories, zfs-datasets, kubernetes-clusters or inventories. Empty: the one with the backend’s name' },
          ]}
          values={{ backend_type: 'ceph', mode: 'external' }}
          action="Add the backend"
          onClose={() => setAdding(false)}
          onSubmit={async (input) => {
            await api.POST('/backends', { body: input });
            setAdding(false);
            toast(`${input.name} is added. Discover it to use it at once.`);
            await refresh();
          }}
        >
          <p>This changes nothing in the storage system. The first discovery pins its identity: another system in its place is refused from then on.</p>
        </FormDialog>
      )}
    </Page>
  );
}
