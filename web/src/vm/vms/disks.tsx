/** The disks of a VM: what it has, and what the person may do with them. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { DiskCard } from '../../ui/disks/card';
import { addLimits, changeLimits, changeSize } from '../../ui/disks/fields';
import { diskChange, removable, type Disk, type Machine } from '../../ui/disks/state';
import { atField } from '../../ui/problem';
import { api, schemas, useMay, useSeesAll, type DiskChange, type DiskSpec, type VM } from '../api';
import { diskNames, useReadyImages } from '../images/ready';
import { at } from '../links';
import { diskField } from '../refused';
import { alive, changeable, flexible, seen } from '../states';
import { listed } from './listed';

/** What the VM is to its disks. While nobody tells of it, nothing is known of them. */
function machineOf(vm: VM, told: boolean): Machine {
  if (!told || !seen(vm)) return { name: vm.name, state: 'unknown' };
  return { name: vm.name, state: vm.state === 'paused' ? 'paused' : alive(vm) ? 'running' : 'resting' };
}

export function Disks({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const allowed = useMay();
  // Limits are the operator's: tenants see them.
  const limits = useSeesAll();
  const images = useReadyImages();
  const list = useQuery({ queryKey: ['vms', 'disks', vm.id], queryFn: ({ signal }) => body(api.GET('/api/vms/{name}/disks', { ...at(vm), signal })), refetchInterval: 3_000 });
  const of = (d: Disk) => ({ params: { path: { name: vm.name, disk: d.name }, query: { tenant: vm.tenant ?? '' } } });
  const machine = machineOf(vm, list.error === null);
  const now = changeable(vm);
  const removes = allowed('RemoveDisk');
  return (
    <DiskCard<Disk, DiskSpec, DiskChange>
      vm={machine}
      disks={listed(vm, list.data)}
      error={list.error ?? undefined}
      retry={() => void list.refetch()}
      none={vm.provisioned ? 'It boots a kernel, and keeps nothing on a disk.' : 'The hypervisor has not made it yet.'}
      refresh={() => Promise.all(['vms', 'tenants'].map((key) => queries.invalidateQueries({ queryKey: [key] })))}
      add={
        now && allowed('AddDisk')
          ? {
              schema: schemas.AddDisk,
              limits,
              fields: [
                { name: 'name', label: 'Name', hint: 'Linux guests have the disk at /dev/disk/by-id/virtio-NAME' },
                { name: 'size', label: 'Size in GiB', hint: 'At least that of the image, if there is one' },
                { name: 'image', label: 'Copy of the image', suggestions: diskNames(images, vm), hint: 'Without one, the disk is empty' },
                ...(limits ? addLimits : []),
                { name: 'read_only', label: 'Read-only' },
              ],
              run: (input) => body(atField(api.POST('/api/vms/{name}/disks', { ...at(vm), body: input }), diskField)),
            }
          : undefined
      }
      change={
        now && allowed('ChangeDisk')
          ? {
              schema: schemas.ChangeDisk,
              limits,
              fields: (d) => [...changeSize('size', d), ...(limits ? changeLimits : [])],
              run: async (d, input) => {
                const change = diskChange(d, input, limits);
                if (Object.keys(change).length === 0) return d;
                return body(atField(api.PATCH('/api/vms/{name}/disks/{disk}', { ...of(d), body: change }), diskField));
              },
            }
          : undefined
      }
      remove={
        now && removes && !vm.protected
          ? { can: (d) => removable(machine, d), run: async (d) => (await body(api.DELETE('/api/vms/{name}/disks/{disk}', of(d)))).disks }
          : undefined
      }
    >
      {!flexible(vm) && <p className="card-body muted small">Disks can be added and changed of VMs of the backend qemu. This one has {vm.backend}.</p>}
      {machine.state === 'unknown' && <p className="card-body muted small">The hypervisor does not tell of the VM: these are the disks that it had when it was last seen.</p>}
      {vm.job && allowed('AddDisk') && <p className="card-body muted small">Disks can be changed again when what is under way is finished.</p>}
      {removes && vm.protected && <p className="card-body muted small">The VM is protected. Allow deleting it before you remove a disk.</p>}
      {removes && vm.state === 'paused' && <p className="card-body muted small">The VM is paused. Resume or stop it to remove a disk that is attached.</p>}
    </DiskCard>
  );
}
