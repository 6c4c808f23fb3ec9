/** The disks of a VM: what the daemon has, and what one may do with them. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../../ui/client';
import { DiskCard } from '../../ui/disks/card';
import { addLimits, changeLimits, changeSize } from '../../ui/disks/fields';
import { diskChange, removable, type Machine } from '../../ui/disks/state';
import { ApiError } from '../../ui/problem';
import { DateTime } from '../../ui/time';
import { api, schemas, type Disk as APIDisk, type DiskPatch, type DiskSpec, type VM } from '../api';
import { useImages } from '../images/names';
import { atField } from '../refused';
import { alive, changeable } from '../states';

type Disk = APIDisk & { size: number };

const shown = (d: APIDisk): Disk => ({ ...d, size: d.size_gib });

/** All disks of a VM, the system disk first. */
export const useDisks = (id: string) =>
  useQuery({ queryKey: ['vms', 'disks', id], queryFn: async ({ signal }) => (await body(api.GET('/v1/vms/{id}/disks', { params: { path: { id } }, signal }))).map(shown), refetchInterval: 3_000 });

/**
 * The disks that guests did not let go of when they were asked to. The daemon lists them as
 * attached, so the page remembers them for as long as the VM's process runs.
 */
export function useKept(vm: Pick<VM, 'started_at'> | undefined): { kept: (d: Disk) => boolean; keep: (d: Disk) => void } {
  const [those, setThose] = useState<readonly string[]>([]);
  const key = (d: Disk) => `${d.name} ${d.created_at} ${vm?.started_at}`;
  return { kept: (d) => those.includes(key(d)), keep: (d) => setThose((known) => [...known, key(d)]) };
}

export function Disks({ vm, kept: { kept, keep } }: { vm: VM; kept: ReturnType<typeof useKept> }) {
  const queries = useQueryClient();
  const images = useImages();
  const list = useDisks(vm.id);
  const at = (d: Disk) => ({ params: { path: { id: vm.id, disk: d.name } } });
  const machine: Machine = { name: vm.name, state: vm.state === 'paused' ? 'paused' : alive(vm.state) ? 'running' : 'resting' };
  const may = changeable(vm);
  return (
    <DiskCard<Disk, DiskSpec, DiskPatch>
      vm={machine}
      disks={list.data}
      error={list.error ?? undefined}
      retry={() => void list.refetch()}
      more={[{ id: 'created', header: 'Added', cell: (d) => d.created_at !== undefined && <DateTime at={d.created_at} /> }]}
      none="It boots a kernel or runs a root file system, and keeps nothing on a disk."
      kept={kept}
      refresh={() => queries.invalidateQueries({ queryKey: ['vms'] })}
      add={
        may
          ? {
              schema: schemas.CreateDisk,
              limits: true,
              fields: [
                { name: 'name', label: 'Name' },
                { name: 'size_gib', label: 'Size in GiB', hint: 'With an image, it may be left out: as large as the image' },
                { name: 'image', label: 'Copy of the image', suggestions: images.filter((i) => i.kind === 'disk').map((i) => i.name), hint: 'Without one, the disk is empty' },
                { name: 'serial', label: 'Serial number', hint: 'Linux guests have the disk at /dev/disk/by-id/virtio-SERIAL. Without one, it is the name.' },
                ...addLimits,
                { name: 'read_only', label: 'Read-only' },
              ],
              run: async (input) => shown(await body(atField(api.POST('/v1/vms/{id}/disks', { params: { path: { id: vm.id } }, body: input })))),
            }
          : undefined
      }
      change={
        may
          ? {
              schema: schemas.ChangeDisk,
              limits: true,
              fields: (d) => [...changeSize('size_gib', d), ...changeLimits],
              run: async (d, input) => {
                const change = diskChange(d, input);
                if (Object.keys(change).length === 0) return d;
                return shown(await body(atField(api.PATCH('/v1/vms/{id}/disks/{disk}', { ...at(d), body: change }))));
              },
            }
          : undefined
      }
      remove={
        may
          ? {
              can: (d) => removable(machine, d),
              run: async (d) => {
                try {
                  return (await body(api.DELETE('/v1/vms/{id}/disks/{disk}', at(d)))).disks;
                } catch (e) {
                  if (e instanceof ApiError && e.code === 'disk_in_use') keep(d);
                  throw e;
                }
              },
            }
          : undefined
      }
    >
      {vm.backend !== 'qemu' && <p className="card-body muted small">Disks can be added and changed of VMs of the backend qemu. This one has {vm.backend}.</p>}
      {vm.state === 'paused' && <p className="card-body muted small">The VM is paused. Resume or stop it to remove a disk that is attached.</p>}
      {vm.served_disk === true && <p className="card-body muted small">A client serves it another disk, which is not listed here.</p>}
    </DiskCard>
  );
}
