/** The disks that the page of a VM lists. */
import { systemDisk, type Disk as Shown } from '../../ui/disks/state';
import type { Disk, VM } from '../api';
import { seen } from '../states';

/**
 * What the hypervisor lists, or, of a VM that it does not tell of, what is recorded: that has the
 * size of the system disk only, and nothing at all where the image decides.
 */
export function listed(vm: Pick<VM, 'state' | 'unreachable' | 'disk' | 'disks'>, told: Disk[] | undefined): Shown[] | undefined {
  if (seen(vm)) return told;
  const system: Shown = { name: systemDisk, size: vm.disk, read_only: false, state: 'attached' };
  return [...(vm.disk > 0 ? [system] : []), ...vm.disks];
}
