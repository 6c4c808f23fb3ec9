/** The disks of a VM: add, change, remove. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Copyable } from '../../ui/copy';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Notice } from '../../ui/notice';
import { wholeList } from '../../ui/paging';
import { ApiError } from '../../ui/problem';
import { Table, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, type Disk, type DiskPatch, type DiskSpec, type VM } from '../api';
import { diskLimits } from '../format';
import { useImages } from '../images/names';
import { atField } from '../refused';
import { alive } from '../states';
import { addedText, changeable, diskChange, DiskState, removable, removedText, type Kept } from './disk-state';

/** All disks of a VM, the system disk first. */
export const useDisks = (id: string) => useQuery({ queryKey: ['vms', 'disks', id], queryFn: ({ signal }) => body(api.GET('/v1/vms/{id}/disks', { params: { path: { id } }, signal })), refetchInterval: 3_000 });

/** The size of a disk, which the daemon does not know of each storage. */
export const sizeText = (d: Pick<Disk, 'size_gib'>) => (d.size_gib > 0 ? `${d.size_gib} GiB` : 'unknown');

const columns = (vm: VM, kept: Kept): Column<Disk>[] => [
  { id: 'name', header: 'Disk', cell: (d) => d.name, text: (d) => d.name },
  { id: 'state', header: 'Attached', cell: (d) => <DiskState vm={vm} disk={d} kept={kept(d)} /> },
  { id: 'size', header: 'Size', cell: (d) => <span className="nowrap">{sizeText(d)}{d.read_only && ', read-only'}</span> },
  { id: 'limits', header: 'Limits', cell: (d) => diskLimits(d) || <span className="muted">none</span> },
  { id: 'serial', header: 'In a Linux guest', cell: (d) => (d.serial ? <Copyable text={`/dev/disk/by-id/virtio-${d.serial}`} /> : <span className="muted">without a serial number</span>) },
  { id: 'image', header: 'Copy of', cell: (d) => d.image ?? null },
  { id: 'created', header: 'Added', cell: (d) => d.created_at !== undefined && <DateTime at={d.created_at} /> },
];

type Asked = { what: 'add' } | { what: 'change'; disk: Disk };

/**
 * The disks that guests did not let go of when they were asked to. The daemon lists them as
 * attached, so the page remembers them for as long as the VM's process runs.
 */
export function useKept(vm: Pick<VM, 'started_at'> | undefined): { kept: Kept; keep: (d: Disk) => void } {
  const [those, setThose] = useState<readonly string[]>([]);
  const key = (d: Disk) => `${d.name} ${d.created_at} ${vm?.started_at}`;
  return { kept: (d) => those.includes(key(d)), keep: (d) => setThose((known) => [...known, key(d)]) };
}

export function Disks({ vm, kept: { kept, keep } }: { vm: VM; kept: ReturnType<typeof useKept> }) {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const images = useImages();
  const [asked, setAsked] = useState<Asked>();
  const list = useDisks(vm.id);
  const refresh = () => queries.invalidateQueries({ queryKey: ['vms'] });
  const at = (d: Disk) => ({ params: { path: { id: vm.id, disk: d.name } } });
  const done = async (text: string) => {
    setAsked(undefined);
    toast(text);
    await refresh();
  };

  const remove = (d: Disk) => {
    let outcome = '';
    confirm({
      title: `Remove the disk ${d.name} of ${vm.name}?`,
      body: (
        <>
          <p>
            <b>{d.name}</b> is removed with all that is on its {sizeText(d)}. No backup of {vm.name} has it.
          </p>
          {d.state === 'attached' && alive(vm.state) && <p>Unmount it in the guest first: the guest is asked to let go of it, and has 20 seconds. The guest of a VM that boots a kernel keeps it until the VM stops.</p>}
        </>
      ),
      typed: d.name,
      action: 'Remove the disk',
      danger: true,
      run: async () => {
        try {
          outcome = removedText(await body(api.DELETE('/v1/vms/{id}/disks/{disk}', at(d))), d.name);
        } catch (e) {
          if (e instanceof ApiError && e.code === 'disk_in_use') keep(d);
          throw e;
        } finally {
          await refresh();
        }
      },
      done: () => outcome,
    });
  };
  const add = changeable(vm) && (
    <button type="button" className="btn btn-primary" onClick={() => setAsked({ what: 'add' })}>
      Add a disk
    </button>
  );
  const held = list.data?.filter((d) => d.state === 'attached' && alive(vm.state) && kept(d)) ?? [];
  return (
    <Card title="Disks" actions={add} flush>
      {vm.backend !== 'qemu' && <p className="card-body muted small">Disks can be added and changed of VMs of the backend qemu. This one has {vm.backend}.</p>}
      {vm.state === 'paused' && <p className="card-body muted small">The VM is paused. Resume or stop it to remove a disk that is attached.</p>}
      {vm.served_disk === true && <p className="card-body muted small">A client serves it another disk, which is not listed here.</p>}
      {held.length > 0 && (
        <div className="card-body">
          <Notice tone="warn">
            <strong>The guest has not let go of {held.map((d) => d.name).join(', ')}.</strong> Unmount it in the guest and remove it again, or stop the VM first.
          </Notice>
        </div>
      )}
      <Table
        brief
        label={`Disks of ${vm.name}`}
        noun="disk"
        columns={columns(vm, kept)}
        pages={wholeList(list.data, list.error ?? undefined, () => void list.refetch())}
        rowKey={(d) => d.name}
        actions={(d) => [
          ...(changeable(vm) && d.state !== 'removing' ? [{ label: 'Change…', run: () => setAsked({ what: 'change', disk: d }) }] : []),
          ...(removable(vm, d) ? [{ label: 'Remove…', danger: true, run: () => remove(d) }] : []),
        ]}
        empty={{ icon: 'server', title: 'The VM has no disks', text: 'It boots a kernel or runs a root file system, and keeps nothing on a disk.' }}
      />
      {asked?.what === 'add' && (
        <FormDialog<DiskSpec>
          title={`Add a disk to ${vm.name}`}
          schema={schemas.CreateDisk}
          two
          fields={[
            { name: 'name', label: 'Name' },
            { name: 'size_gib', label: 'Size in GiB', hint: 'With an image, it may be left out: as large as the image' },
            { name: 'image', label: 'Copy of the image', suggestions: images.filter((i) => i.kind === 'disk').map((i) => i.name), hint: 'Without one, the disk is empty' },
            { name: 'serial', label: 'Serial number', hint: 'Linux guests have the disk at /dev/disk/by-id/virtio-SERIAL. Without one, it is the name.' },
            { name: 'iops', label: 'Most operations a second', hint: 'Reads and writes together' },
            { name: 'bytes_per_second', label: 'Most bytes a second', hint: 'Read and written together' },
            { name: 'read_only', label: 'Read-only' },
          ]}
          preview={(input) => <Limits of={input} />}
          action="Add the disk"
          onClose={() => setAsked(undefined)}
          onSubmit={async (input) => {
            const d = await body(atField(api.POST('/v1/vms/{id}/disks', { params: { path: { id: vm.id } }, body: input })));
            await done(addedText(vm, d));
          }}
        >
          {alive(vm.state) && <p className="muted small">The guest sees the disk at once if the VM boots its disk or firmware. A VM that boots a kernel gets it at its next start.</p>}
        </FormDialog>
      )}
      {asked?.what === 'change' && <Change vm={vm} disk={asked.disk} onClose={() => setAsked(undefined)} onDone={done} />}
    </Card>
  );
}

/** The limits that a form would set, in units that are easier to read. */
function Limits({ of }: { of: Partial<DiskPatch> }) {
  const text = diskLimits(of);
  return <p className="muted small">{text ? `The guest may do ${text}.` : 'The guest may do as much as the host can.'}</p>;
}

function Change({ vm, disk: d, onClose, onDone }: { vm: VM; disk: Disk; onClose: () => void; onDone: (text: string) => Promise<void> }) {
  return (
    <FormDialog<DiskPatch>
      title={`Change the disk ${d.name} of ${vm.name}`}
      schema={schemas.ChangeDisk}
      fields={[
        ...(d.read_only ? [] : [{ name: 'size_gib', label: 'Size in GiB', hint: `It has ${sizeText(d)}, and can only grow. The guest’s file system does not grow by itself.` }]),
        { name: 'iops', label: 'Most operations a second', hint: 'Reads and writes together; 0: no limit' },
        { name: 'bytes_per_second', label: 'Most bytes a second', hint: 'Read and written together; 0: no limit' },
      ]}
      values={{ ...(d.size_gib > 0 && { size_gib: d.size_gib }), iops: d.iops, bytes_per_second: d.bytes_per_second }}
      preview={(input) => <Limits of={input} />}
      action="Change the disk"
      onClose={onClose}
      onSubmit={async (input) => {
        const change = diskChange(d, input);
        if (Object.keys(change).length > 0) await atField(api.PATCH('/v1/vms/{id}/disks/{disk}', { params: { path: { id: vm.id, disk: d.name } }, body: change }));
        await onDone(`${d.name} has ${sizeText({ size_gib: change.size_gib ?? d.size_gib })}, and ${diskLimits({ ...d, ...change }) || 'no limits'}.`);
      }}
    />
  );
}
