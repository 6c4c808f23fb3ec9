/** What is known of a VM's disks, in words, and what can be done with them. */
import { changedOf } from '../changed';
import type { IconName } from '../icon';
import { count } from '../number';
import { bytes } from '../size';
import { Status, type Tone } from '../status';

/** A disk, as all consoles show it. */
export interface Disk {
  name: string;
  /** GiB; 0 where it is not known. */
  size: number;
  /** The image that it is a copy of. */
  image?: string | undefined;
  read_only: boolean;
  serial?: string | undefined;
  /** 0: no limit. Without a number, it is not known. */
  iops?: number | undefined;
  bytes_per_second?: number | undefined;
  /** `pending`: the next start attaches it. `removing`: it goes when the VM stops. */
  state: 'attached' | 'pending' | 'removing';
}

/** What matters of the VM. */
export interface Machine {
  name: string;
  state: 'running' | 'paused' | 'resting' | 'unknown';
}

/** The name of the system disk. */
export const systemDisk = 'system';

/** Whether the guest uses its disks. */
export const inUse = (vm: Pick<Machine, 'state'>) => vm.state === 'running' || vm.state === 'paused';

/** Whether a disk can be removed now. The guest of a paused VM cannot let go of one that it has. */
export const removable = (vm: Pick<Machine, 'state'>, d: Pick<Disk, 'name' | 'state'>) => d.name !== systemDisk && (d.state === 'pending' || (d.state === 'attached' && vm.state !== 'paused'));

/** When the guest has the disk. It keeps one that it did not let go of when it was asked to. */
export function diskState(vm: Pick<Machine, 'state'>, d: Pick<Disk, 'state'>, kept: boolean): { tone: Tone; text: string; icon?: IconName } {
  if (vm.state === 'unknown') return { tone: 'idle', text: 'not known' };
  switch (d.state) {
    case 'pending':
      return { tone: 'info', text: 'from the next start', icon: 'clock' };
    case 'removing':
      return { tone: 'warn', text: inUse(vm) ? 'until the VM stops' : 'being removed', icon: 'clock' };
    case 'attached':
      if (!inUse(vm)) return { tone: 'idle', text: 'when the VM runs' };
      return kept ? { tone: 'warn', text: 'the guest keeps it' } : { tone: 'ok', text: 'now' };
  }
}

export function DiskState({ vm, disk, kept }: { vm: Machine; disk: Disk; kept: boolean }) {
  const { tone, text, icon } = diskState(vm, disk, kept);
  return (
    <Status tone={tone} icon={icon}>
      {text}
    </Status>
  );
}

/** The size of a disk, which is not known of each storage. */
export const sizeText = (d: Pick<Disk, 'size'>) => (d.size > 0 ? `${d.size} GiB` : 'unknown');

/** What a guest may do with a disk, or an empty text if that has no limits. */
export function diskLimits({ iops = 0, bytes_per_second = 0 }: Partial<Pick<Disk, 'iops' | 'bytes_per_second'>>): string {
  return [iops > 0 && `${count(iops)} operations/s`, bytes_per_second > 0 && `${bytes(bytes_per_second)}/s`].filter(Boolean).join(', ');
}

/** What was done to a disk that was just added. */
export function addedText(vm: Machine, d: Pick<Disk, 'name' | 'state'>): string {
  if (d.state === 'pending') return `${d.name} is added. The next start of ${vm.name} attaches it.`;
  return inUse(vm) ? `${d.name} is added and attached.` : `${d.name} is added. ${vm.name} has it when it runs.`;
}

/** What became of a disk that was just removed, according to the disks that the VM has then. */
export function removedText(vm: Pick<Machine, 'name'>, left: readonly Pick<Disk, 'name'>[], name: string): string {
  return left.some((d) => d.name === name) ? `${name} is removed when ${vm.name} stops.` : `${name} is removed.`;
}

/** What a disk is after it was changed. */
export const changedText = (d: Disk) => `${d.name} has ${d.size > 0 ? `${d.size} GiB, and ` : ''}${diskLimits(d) || 'no limits'}.`;

/** The part of a form's input that differs from what the disk has. An empty limit is none, where limits are asked for. */
export function diskChange<C extends { iops?: number; bytes_per_second?: number }>(d: object, input: C, limits = true): Partial<C> {
  return changedOf(d, { ...(limits && { iops: 0, bytes_per_second: 0 }), ...input });
}
