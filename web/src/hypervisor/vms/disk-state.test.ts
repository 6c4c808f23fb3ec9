import { describe, expect, it } from 'vitest';
import type { Disk } from '../api';
import { states } from '../states';
import { addedText, changeable, diskChange, diskState, removable, removedText } from './disk-state';

const disk = { name: 'data', size_gib: 2, read_only: false, serial: 'data', iops: 100, bytes_per_second: 0, state: 'attached' } as const satisfies Disk;

describe('what one may do with disks', () => {
  it('follows from the state of the VM, and from its backend', () => {
    expect(states.filter((state) => changeable({ state, backend: 'qemu' }))).toEqual(['running', 'paused', 'stopped', 'failed']);
    expect(states.filter((state) => changeable({ state, backend: 'sandbox' }))).toEqual([]);
  });
  it('leaves the system disk, what is being removed, and what a paused guest has', () => {
    const running = { state: 'running', backend: 'qemu' } as const;
    const paused = { state: 'paused', backend: 'qemu' } as const;
    expect(removable(running, disk)).toBe(true);
    expect(removable(running, { ...disk, name: 'system' })).toBe(false);
    expect(removable(running, { ...disk, state: 'removing' })).toBe(false);
    expect(removable(paused, disk)).toBe(false);
    expect(removable(paused, { ...disk, state: 'pending' })).toBe(true);
  });
});

describe('the state of a disk', () => {
  it('says when the guest has it', () => {
    const of = (state: Disk['state'], vm: 'running' | 'stopped', kept = false) => diskState({ state: vm }, { state }, kept).text;
    expect(of('attached', 'running')).toBe('now');
    expect(of('attached', 'running', true)).toBe('the guest keeps it');
    expect(of('attached', 'stopped')).toBe('when the VM runs');
    expect(of('attached', 'stopped', true)).toBe('when the VM runs');
    expect(of('pending', 'running')).toBe('from the next start');
    expect(of('removing', 'running')).toBe('until the VM stops');
    expect(of('removing', 'stopped')).toBe('being removed');
  });
  it('is said after a disk was added or removed', () => {
    expect(addedText({ name: 'web', state: 'running' }, disk)).toBe('data is added and attached.');
    expect(addedText({ name: 'web', state: 'running' }, { ...disk, state: 'pending' })).toBe('data is added. The next start of web attaches it.');
    expect(addedText({ name: 'web', state: 'stopped' }, disk)).toBe('data is added. web has it when it runs.');
    expect(removedText({ name: 'web', disks: [] }, 'data')).toBe('data is removed.');
    expect(removedText({ name: 'web', disks: [{ ...disk, state: 'removing' }] }, 'data')).toBe('data is removed when web stops.');
  });
});

describe('a change to a disk', () => {
  it('has only what differs', () => {
    expect(diskChange(disk, { size_gib: 2, iops: 100, bytes_per_second: 0 })).toEqual({});
    expect(diskChange(disk, { size_gib: 3, iops: 100, bytes_per_second: 5 })).toEqual({ size_gib: 3, bytes_per_second: 5 });
  });
  it('takes an empty limit for none, and an empty size for the one that it has', () => {
    expect(diskChange(disk, {})).toEqual({ iops: 0 });
  });
});
