/** The fields of forms about disks that all consoles ask for. */
import type { FieldSpec } from '../draft';
import { diskLimits, sizeText, type Disk } from './state';

export const addLimits: readonly FieldSpec[] = [
  { name: 'iops', label: 'Most operations a second', hint: 'Reads and writes together' },
  { name: 'bytes_per_second', label: 'Most bytes a second', hint: 'Read and written together' },
];

export const changeLimits: readonly FieldSpec[] = addLimits.map((f) => ({ ...f, hint: `${f.hint}; 0: no limit` }));

/** The field with the new size. A read-only disk keeps its own. */
export const changeSize = (name: string, d: Disk): FieldSpec[] =>
  d.read_only ? [] : [{ name, label: 'Size in GiB', hint: `It has ${sizeText(d)}, and can only grow. The guest’s file system does not grow by itself.` }];

/** The limits that a form would set, in units that are easier to read. */
export function LimitsPreview({ of }: { of: Partial<Pick<Disk, 'iops' | 'bytes_per_second'>> }) {
  const text = diskLimits(of);
  return <p className="muted small">{text ? `The guest may do ${text}.` : 'The guest may do as much as the host can.'}</p>;
}
