/** The backups of a VM: create, restore, export, delete. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { page } from '../../ui/client';
import { reason } from '../../ui/problem';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { usePages } from '../../ui/paging';
import { Table, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, type Backup, type VM } from '../api';
import { download } from '../../ui/download';
import { bytes } from '../../ui/size';
import { atRest } from '../states';

const columns: readonly Column<Backup>[] = [
  { id: 'created', header: 'Made', cell: (b) => <DateTime at={b.created_at} />, sort: (b) => b.created_at, text: (b) => b.created_at },
  { id: 'kind', header: 'Kind', cell: (b) => b.kind, sort: (b) => b.kind },
  { id: 'size', header: 'Size', cell: (b) => bytes(b.size_bytes), sort: (b) => b.size_bytes, text: () => '' },
  { id: 'disk', header: 'Disk', cell: (b) => bytes(b.virtual_size_bytes), text: () => '' },
  { id: 'description', header: 'Description', cell: (b) => b.description, text: (b) => b.description },
];

type Asked = { what: 'make' } | { what: 'restore'; backup: Backup };

export function Backups({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const [asked, setAsked] = useState<Asked>();
  const pages = usePages(['backups', vm.id], (cursor, signal) => page(api.GET('/v1/backups', { params: { query: { cursor, vm: vm.id } }, signal })), { refreshSeconds: 5 });
  const refresh = () => Promise.all(['backups', 'vms', 'live'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  const at = (b: Backup) => ({ params: { path: { backup: b.id } } });
  const accepted = async (text: string) => {
    setAsked(undefined);
    toast(text, 'info');
    await refresh();
  };

  const back = (b: Backup) =>
    confirm({
      title: `Put the disk of ${vm.name} back?`,
      body: (
        <p>
          <b>{vm.name}</b> gets the disk of <DateTime at={b.created_at} />. What was written since is lost.
        </p>
      ),
      action: 'Put the disk back',
      danger: true,
      run: async () => {
        await api.POST('/v1/backups/{backup}/restore', { ...at(b), body: { vm: vm.id } });
        await refresh();
      },
      done: 'The restore is under way.',
    });
  const remove = (b: Backup) =>
    confirm({
      title: 'Delete this backup?',
      body: (
        <p>
          The backup of <DateTime at={b.created_at} /> is removed. One that later ones build on stays until those are gone.
        </p>
      ),
      action: 'Delete the backup',
      danger: true,
      run: async () => {
        await api.DELETE('/v1/backups/{backup}', at(b));
        await refresh();
      },
      done: 'The backup is deleted.',
    });
  const save = async (b: Backup) => {
    try {
      await download(`/v1/backups/${encodeURIComponent(b.id)}/export`, `${b.vm_name}-${b.created_at.slice(0, 10)}.qcow2`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  return (
    <Card
      title="Backups"
      actions={
        <button type="button" className="btn btn-primary" onClick={() => setAsked({ what: 'make' })}>
          Create a backup
        </button>
      }
      flush
    >
      {!atRest(vm.state) && <p className="card-body muted small">The VM is {vm.state}. Stop it to put its disk back.</p>}
      <Table
        brief
        at="backups." label={`Backups of ${vm.name}`}
        noun="backup"
        columns={columns}
        pages={pages}
        rowKey={(b) => b.id}
        actions={(b) => [
          { label: 'Create a VM from it…', run: () => setAsked({ what: 'restore', backup: b }) },
          ...(atRest(vm.state) ? [{ label: 'Put this VM’s disk back…', run: () => back(b) }] : []),
          { label: 'Export as qcow2', run: () => void save(b) },
          { label: 'Delete…', danger: true, run: () => remove(b) },
        ]}
        empty={{ icon: 'deployment', title: 'There are no backups', text: 'A backup is a copy of the disk beside the VM, and stays when the VM is deleted.' }}
      />
      {asked?.what === 'make' && (
        <FormDialog<{ kind?: 'full' | 'incremental'; description?: string }>
          title={`Create a backup of ${vm.name}`}
          schema={schemas.CreateBackup}
          fields={[
            { name: 'kind', label: 'Kind' },
            { name: 'description', label: 'Description' },
          ]}
          values={{ kind: 'full' }}
          action="Create the backup"
          onClose={() => setAsked(undefined)}
          onSubmit={async (input) => {
            await api.POST('/v1/vms/{id}/backups', { params: { path: { id: vm.id } }, body: input });
            await accepted('The backup is under way.');
          }}
        />
      )}
      {asked?.what === 'restore' && (
        <FormDialog<{ name?: string }>
          title="Create a VM from a backup"
          schema={schemas.RestoreBackup}
          fields={[{ name: 'name', label: 'Name of the new VM' }]}
          values={{ name: `${vm.name}-restored`.slice(0, 63) }}
          action="Create the VM"
          onClose={() => setAsked(undefined)}
          onSubmit={async (input) => {
            await api.POST('/v1/backups/{backup}/restore', { ...at(asked.backup), body: input });
            await accepted('The restore is under way.');
          }}
        />
      )}
    </Card>
  );
}
