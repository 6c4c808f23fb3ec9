import { describe, expect, it } from 'vitest';
import { addedText, changedText, diskChange, diskLimits, diskState, removable, removedText, type Disk, type Machine } from './state';

const disk = { name: 'data', size: 2, read_only: false, serial: 'data', iops: 100, bytes_per_second: 0, state: 'attached' } as const satisfies Disk;
const of = (state: Machine['state']): Machine => ({ name: 'web', state });

describe('what one may remove', () => {
  it('leaves the system disk, what is being removed, and what a paused guest has', () => {
    expect(removable(of('running'), disk)).toBe(true);
    expect(removable(of('resting'), disk)).toBe(true);
    expect(removable(of('running'), { ...disk, name: 'system' })).toBe(false);
    expect(removable(of('running'), { ...disk, state: 'removing' })).toBe(false);
    expect(removable(of('paused'), disk)).toBe(false);
    expect(removable(of('paused'), { ...disk, state: 'pending' })).toBe(true);
  });
});

describe('the state of a disk', () => {
  it('says when the guest has it', () => {
    const text = (state: Disk['state'], vm: Machine['state'], kept = false) => diskState(of(vm), { state }, kept).text;
    expect(text('attached', 'running')).toBe('now');
    expect(text('attached', 'paused')).toBe('now');
    expect(text('attached', 'running', true)).toBe('the guest keeps it');
    expect(text('attached', 'resting')).toBe('when the VM runs');
    expect(text('attached', 'resting', true)).toBe('when the VM runs');
    expect(text('pending', 'running')).toBe('from the next start');
    expect(text('removing', 'running')).toBe('until the VM stops');
    expect(text('removing', 'resting')).toBe('being removed');
  });
  it('is not known of a VM that is not seen', () => {
    for (const state of ['attached', 'pending', 'removing'] as const) expect(diskState(of('unknown'), { state }, true)).toEqual({ tone: 'idle', text: 'not known' });
  });
  it('is said after a disk was added, changed or removed', () => {
    expect(addedText(of('running'), disk)).toBe('data is added and attached.');
    expect(addedText(of('running'), { ...disk, state: 'pending' })).toBe('data is added. The next start of web attaches it.');
    expect(addedText(of('resting'), disk)).toBe('data is added. web has it when it runs.');
    expect(changedText(disk)).toBe('data has 2 GiB, and 100 operations/s.');
    expect(changedText({ ...disk, size: 0, iops: 0 })).toBe('data has no limits.');
    expect(removedText(of('running'), [], 'data')).toBe('data is removed.');
    expect(removedText(of('running'), [disk], 'data')).toBe('data is removed when web stops.');
  });
});

describe('limits', () => {
  it('are said in units, and not at all where there are none', () => {
    expect(diskLimits({ iops: 500, bytes_per_second: 10 * 2 ** 20 })).toBe('500 operations/s, 10 MiB/s');
    expect(diskLimits({ iops: 0, bytes_per_second: 0 })).toBe('');
  });
});

describe('a change to a disk', () => {
  it('has only what differs', () => {
    expect(diskChange(disk, { size: 2, iops: 100, bytes_per_second: 0 })).toEqual({});
    expect(diskChange(disk, { size: 3, iops: 100, bytes_per_second: 5 })).toEqual({ size: 3, bytes_per_second: 5 });
  });
  it('takes an empty limit for none, and an empty size for the one that it has', () => {
    expect(diskChange(disk, {})).toEqual({ iops: 0 });
  });
  it('leaves the limits that were not asked for', () => {
    const input: { size: number; iops?: number } = { size: 3 };
    expect(diskChange(disk, input, false)).toEqual({ size: 3 });
  });
});
