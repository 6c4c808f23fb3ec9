/** What a backup does not have. */
import type { Backup } from '../api';

const list = new Intl.ListFormat('en', { type: 'disjunction' });

/** The disks that a backup left out, as a sentence. Without any, it is empty. */
export function leftOutText({ left_out, vm_name }: Pick<Backup, 'left_out' | 'vm_name'>): string {
  if (left_out.length === 0) return '';
  return `The backup has the system disk of ${vm_name} only, and not the ${left_out.length === 1 ? 'disk' : 'disks'} ${list.format(left_out)}.`;
}
