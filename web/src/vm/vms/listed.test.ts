import { describe, expect, it } from 'vitest';
import type { Disk } from '../api';
import { listed } from './listed';

const disk = { name: 'data', size: 2, image: '', read_only: false, serial: 'data', iops: 0, bytes_per_second: 0, state: 'attached' } as const satisfies Disk;
const vm = { state: 'running', unreachable: false, disk: 1, disks: [disk] } as const;
const of = (more: object, told?: Disk[]) => listed({ ...vm, ...more, disks: [disk] }, told);

describe('the disks that are listed', () => {
  it('are those that the hypervisor lists', () => {
    expect(of({}, [disk])).toEqual([disk]);
    expect(of({})).toBeUndefined();
  });
  it('are those that are recorded while it does not tell, and the limits of the system disk are not known', () => {
    for (const silent of [{ unreachable: true }, { state: 'missing' as const }]) {
      const [system, data] = of(silent, []) ?? [];
      expect(system).toEqual({ name: 'system', size: 1, read_only: false, state: 'attached' });
      expect(data).toEqual(disk);
    }
    expect(of({ unreachable: true, disk: 0 })).toEqual([disk]);
  });
});
