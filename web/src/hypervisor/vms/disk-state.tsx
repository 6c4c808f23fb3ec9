/** What is known of a VM's disks, and what can be done with them. */
import { Status, type Tone } from '../../ui/status';
import type { IconName } from '../../ui/icon';
import type { Disk, DiskPatch, VM } from '../api';
import { alive, atRest, systemDisk } from '../states';

type Having = Pick<VM, 'state' | 'backend'>;

/** Whether the disks and the CD of the VM can change now. */
export const changeable = (vm: Having) => vm.backend === 'qemu' && (alive(vm.state) || atRest(vm.state));

/**
 * Whether a disk can be removed now. The guest of a paused VM cannot let go of one that it has.
 */
export const removable = (vm: Having, d: Pick<Disk, 'name' | 'state'>) => changeable(vm) && d.name !== systemDisk && (d.state === 'pending' || (d.state === 'attached' && vm.state !== 'paused'));

/** Whether a disk has been asked back from the guest, which did not let go of it. */
export type Kept = (d: Disk) => boolean;

/** When the guest has the disk. */
export function diskState(vm: Pick<VM, 'state'>, d: Pick<Disk, 'state'>, kept: boolean): { tone: Tone; text: string; icon?: IconName } {
  switch (d.state) {
    case 'pending':
      return { tone: 'info', text: 'from the next start', icon: 'clock' };
    case 'removing':
      return { tone: 'warn', text: alive(vm.state) ? 'until the VM stops' : 'being removed', icon: 'clock' };
    case 'attached':
      if (!alive(vm.state)) return { tone: 'idle', text: 'when the VM runs' };
      return kept ? { tone: 'warn', text: 'the guest keeps it' } : { tone: 'ok', text: 'now' };
  }
}

export function DiskState({ vm, disk, kept }: { vm: VM; disk: Disk; kept: boolean }) {
  const { tone, text, icon } = diskState(vm, disk, kept);
  return (
    <Status tone={tone} icon={icon}>
      {text}
    </Status>
  );
}

/** What was done to a disk that was just added. */
export function addedText(vm: Pick<VM, 'name' | 'state'>, d: Pick<Disk, 'name' | 'state'>): string {
  if (d.state === 'pending') return `${d.name} is added. The next start of ${vm.name} attaches it.`;
  return alive(vm.state) ? `${d.name} is added and attached.` : `${d.name} is added. ${vm.name} has it when it runs.`;
}

/** What became of a disk that was just removed, according to the VM that the daemon answered. */
export function removedText(vm: Pick<VM, 'name' | 'disks'>, name: string): string {
  return vm.disks.some((d) => d.name === name) ? `${name} is removed when ${vm.name} stops.` : `${name} is removed.`;
}

/** The part of a form's input that differs from what the disk has. An empty limit is none. */
export function diskChange(d: Pick<Disk, 'size_gib' | 'iops' | 'bytes_per_second'>, input: DiskPatch): DiskPatch {
  const { size_gib = d.size_gib, iops = 0, bytes_per_second = 0 } = input;
  return {
    ...(size_gib !== d.size_gib && { size_gib }),
    ...(iops !== d.iops && { iops }),
    ...(bytes_per_second !== d.bytes_per_second && { bytes_per_second }),
  };
}
