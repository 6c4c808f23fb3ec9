/** The snapshots of a VM: create, restore, delete. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { wholeList } from '../../ui/paging';
import { Table, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, type Snapshot, type SnapshotSpec, type VM } from '../api';
import { bytes } from '../../ui/size';
import { alive, atRest } from '../states';

const columns: readonly Column<Snapshot>[] = [
  { id: 'name', header: 'Snapshot', cell: (s) => s.name, sort: (s) => s.name },
  { id: 'kind', header: 'Holds', cell: (s) => (s.kind === 'full' ? `disk, and ${bytes(s.memory_bytes)} of memory` : 'disk'), sort: (s) => s.kind },
  { id: 'created', header: 'Made', cell: (s) => <DateTime at={s.created_at} />, sort: (s) => s.created_at, text: () => '' },
  { id: 'description', header: 'Description', cell: (s) => s.description, text: (s) => s.description },
];

export function Snapshots({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const [making, setMaking] = useState(false);
  const list = useQuery({ queryKey: ['vms', 'snapshots', vm.id], queryFn: ({ signal }) => body(api.GET('/v1/vms/{id}/snapshots', { params: { path: { id: vm.id } }, signal })), refetchInterval: 10_000 });
  const refresh = () => queries.invalidateQueries({ queryKey: ['vms'] });
  const at = (s: Snapshot) => ({ params: { path: { id: vm.id, snapshot: s.name } } });

  const revert = (s: Snapshot) =>
    confirm({
      title: `Put ${vm.name} back to ${s.name}?`,
      body: (
        <p>
          What was written since <DateTime at={s.created_at} /> is lost. {s.kind === 'full' && 'The VM runs afterwards, as it did then.'}
        </p>
      ),
      action: 'Put it back',
      danger: true,
      run: async () => {
        await api.POST('/v1/vms/{id}/snapshots/{snapshot}/revert', at(s));
        await refresh();
      },
      done: `${vm.name} is as in ${s.name}.`,
    });
  const remove = (s: Snapshot) =>
    confirm({
      title: `Delete the snapshot ${s.name}?`,
      body: <p>The VM stays as it is, and can no longer be put back to {s.name}.</p>,
      action: 'Delete the snapshot',
      danger: true,
      run: async () => {
        await api.DELETE('/v1/vms/{id}/snapshots/{snapshot}', at(s));
        await refresh();
      },
      done: `${s.name} is deleted.`,
    });
  const make = (
    <button type="button" className="btn btn-primary" onClick={() => setMaking(true)}>
      Create a snapshot
    </button>
  );
  return (
    <Card title="Snapshots" actions={make} flush>
      {!atRest(vm.state) && list.data?.some((s) => s.kind === 'disk') && <p className="card-body muted small">The VM is {vm.state}. Stop it to put it back to a snapshot of the disk alone.</p>}
      <Table
        brief
        at="snapshots." label={`Snapshots of ${vm.name}`}
        noun="snapshot"
        columns={columns}
        pages={wholeList(list.data, list.error ?? undefined, () => void list.refetch())}
        rowKey={(s) => s.name}
        actions={(s) => [
          ...(s.kind === 'full' || atRest(vm.state) ? [{ label: 'Put the VM back to it…', run: () => revert(s) }] : []),
          { label: 'Delete…', danger: true, run: () => remove(s) },
        ]}
        empty={{ icon: 'clock', title: 'There are no snapshots', text: 'A snapshot keeps the disk as it is now, and of a VM that runs its memory too.' }}
      />
      {making && (
        <FormDialog<SnapshotSpec>
          title={`Create a snapshot of ${vm.name}`}
          schema={schemas.CreateSnapshot}
          fields={[
            { name: 'name', label: 'Name' },
            {
              name: 'kind',
              label: 'Holds',
              options: [{ value: 'disk', label: 'The disk' }, ...(alive(vm.state) ? [{ value: 'full', label: 'Disk, memory and devices' }] : [])],
              hint: alive(vm.state) ? 'With the memory the VM continues from that moment; the disk alone is as after a loss of power' : 'Memory is kept of a VM that runs',
            },
            { name: 'description', label: 'Description', wide: true },
          ]}
          values={{ kind: alive(vm.state) ? 'full' : 'disk' }}
          action="Create the snapshot"
          onClose={() => setMaking(false)}
          onSubmit={async (input) => {
            await api.POST('/v1/vms/{id}/snapshots', { params: { path: { id: vm.id } }, body: input });
            setMaking(false);
            toast(`${input.name} is made.`);
            await refresh();
          }}
        />
      )}
    </Card>
  );
}
