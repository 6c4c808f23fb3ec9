/** The snapshots of a VM, as the tree that they are: create, return, delete. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Empty, Failure } from '../../ui/notice';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, schemas, useMay, type Snapshot, type SnapshotNode, type SnapshotSpec, type VM } from '../api';
import { at } from '../links';
import { alive } from '../states';

export function Snapshots({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const allowed = useMay();
  const [making, setMaking] = useState(false);
  const tree = useQuery({ queryKey: ['vms', 'snapshots', vm.id], queryFn: ({ signal }) => body(api.GET('/api/vms/{name}/snapshots/tree', { ...at(vm), signal })), refetchInterval: 5_000 });
  const refresh = () => queries.invalidateQueries({ queryKey: ['vms'] });
  const of = (s: Snapshot) => ({ params: { path: { name: vm.name, id: s.id }, query: { tenant: vm.tenant ?? '' } } });

  const revert = (s: Snapshot) =>
    confirm({
      title: `Return ${vm.name} to ${s.name}?`,
      body: (
        <p>
          The disk becomes what it was at <DateTime at={s.created} />. What was written since is lost, unless another snapshot keeps it. {s.snapshot_type === 'Full' && 'The VM runs afterwards, as it did then.'}
        </p>
      ),
      action: 'Return to it',
      danger: true,
      run: async () => {
        await api.POST('/api/vms/{name}/snapshots/{id}/revert', of(s));
        await refresh();
      },
      done: `${vm.name} is as in ${s.name}.`,
    });
  const remove = (node: SnapshotNode) =>
    confirm({
      title: `Delete the snapshot ${node.snapshot.name}?`,
      body: (
        <p>
          {vm.name} stays as it is, and cannot return to {node.snapshot.name} any more.
          {node.children.length > 0 && ` Those that were taken after it stay: ${node.children.map((c) => c.snapshot.name).join(', ')}.`}
        </p>
      ),
      action: 'Delete the snapshot',
      danger: true,
      run: async () => {
        await api.DELETE('/api/vms/{name}/snapshots/{id}', of(node.snapshot));
        await refresh();
      },
      done: `${node.snapshot.name} is deleted.`,
    });
  // A disk alone is put back under a guest that does not run.
  const reverts = (s: Snapshot) => allowed('RevertSnapshot') && (s.snapshot_type === 'Full' || vm.state === 'stopped');
  const actions = (node: SnapshotNode) => [
    ...(reverts(node.snapshot) ? [{ label: 'Return to it…', run: () => revert(node.snapshot) }] : []),
    ...(allowed('DeleteSnapshot') ? [{ label: 'Delete…', danger: true, run: () => remove(node) }] : []),
  ];
  const list = (nodes: readonly SnapshotNode[]) => (
    <ul>
      {nodes.map((node) => (
        <li key={node.snapshot.id}>
          <div className="tree-node">
            <span className="tree-name">
              <b>{node.snapshot.name}</b>
              <span className="muted small">
                <DateTime at={node.snapshot.created} />, {node.snapshot.snapshot_type === 'Full' ? `disk and ${bytes(node.snapshot.size_bytes)} of memory` : 'disk'}
              </span>
              {node.snapshot.current && <Status tone="ok">the disk stands on it</Status>}
              {node.snapshot.description && <span className="small">{node.snapshot.description}</span>}
            </span>
            {actions(node).length > 0 && <Menu label={`Actions for ${node.snapshot.name}`} button={<Icon name="more" />} actions={actions(node)} />}
          </div>
          {node.children.length > 0 && list(node.children)}
        </li>
      ))}
    </ul>
  );
  const full = alive(vm);
  // Of a VM that runs, only one with its memory can be taken.
  const possible = full || vm.state === 'stopped';
  return (
    <Card
      title="Snapshots"
      actions={
        <Allowed operation="CreateSnapshot">
          <button type="button" className="btn btn-primary" disabled={!possible || vm.job !== null} onClick={() => setMaking(true)}>
            Create a snapshot
          </button>
        </Allowed>
      }
    >
      {tree.error && !tree.data ? (
        <Failure error={tree.error} retry={() => void tree.refetch()} />
      ) : !tree.data ? (
        <span className="skeleton" />
      ) : tree.data.length === 0 ? (
        <Empty icon="clock" title="There are no snapshots">
          A snapshot keeps the disk as it is now, and of a VM that runs its memory too. {possible ? '' : `The VM is ${vm.state}: stop or start it first.`}
        </Empty>
      ) : (
        <div className="stack">
          {vm.state !== 'stopped' && <p className="muted small">The VM is {vm.state}. Stop it to return to a snapshot of the disk alone.</p>}
          <div className="tree" role="group" aria-label={`Snapshots of ${vm.name}`}>
            {list(tree.data)}
          </div>
        </div>
      )}
      {making && (
        <FormDialog<SnapshotSpec>
          title={`Create a snapshot of ${vm.name}`}
          schema={schemas.CreateSnapshot}
          fields={[
            { name: 'name', label: 'Name', hint: 'Unique among the snapshots of this VM' },
            {
              name: 'snapshot_type',
              label: 'Keeps',
              options: full ? [{ value: 'Full', label: 'Disk and memory' }] : [{ value: 'Disk', label: 'The disk' }],
              hint: full ? 'The VM continues from that moment when it returns. Stop it to keep the disk alone.' : 'Of a VM that runs, the memory is kept, too.',
            },
            { name: 'description', label: 'Description', wide: true },
          ]}
          values={{ snapshot_type: full ? 'Full' : 'Disk' }}
          action="Create the snapshot"
          onClose={() => setMaking(false)}
          onSubmit={async (input) => {
            await api.POST('/api/vms/{name}/snapshots', { ...at(vm), body: input });
            setMaking(false);
            toast(`${input.name} is made.`);
            await refresh();
          }}
        />
      )}
    </Card>
  );
}
