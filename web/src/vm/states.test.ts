import { describe, expect, it } from 'vitest';
import { changeable, pendingText, seen, states } from './states';

const vm = { state: 'running', unreachable: false, backend: 'auto', provisioned: true, job: null } as const;

describe('what can be done with disks', () => {
  it('follows from the state of the VM, and from its backend', () => {
    expect(states.filter((state) => changeable({ ...vm, state }))).toEqual(['running', 'paused', 'stopped', 'failed']);
    expect(['auto', 'qemu', 'firecracker', 'sandbox'].filter((backend) => changeable({ ...vm, backend }))).toEqual(['auto', 'qemu']);
  });
  it('waits for what is under way, for the making, and for the host', () => {
    expect(changeable({ ...vm, job: { id: '1', kind: 'backup.create' } })).toBe(false);
    expect(changeable({ ...vm, provisioned: false })).toBe(false);
    for (const state of ['running', 'stopped'] as const) expect(changeable({ ...vm, state, unreachable: true })).toBe(false);
  });
});

describe('a VM', () => {
  it('is not seen while its host does not answer, or the hypervisor does not know it', () => {
    expect(seen(vm)).toBe(true);
    expect(seen({ ...vm, unreachable: true })).toBe(false);
    expect(seen({ ...vm, state: 'missing' })).toBe(false);
  });
  it('says in words what waits for its next start', () => {
    expect(pendingText({ pending: ['cpus', 'memory', 'cd', 'disks'] })).toBe('processors, memory, CD and disks');
  });
});
