import { describe, expect, it } from 'vitest';
import { ApiError } from '../ui/problem';
import { diskField } from './refused';

describe('the field that a refusal of a disk is about', () => {
  it('is the size for the quota of disks, and the name for one that is taken', () => {
    const of = (message: string) => diskField(new ApiError(409, '', message));
    expect(of('quota disk of tenant acme: 5 GiB of disk requested, 1 of 3 left')).toBe('size');
    expect(of('the VM has a disk data already')).toBe('name');
    expect(of('the guest does not let go of the disk data')).toBeUndefined();
    expect(diskField(new Error('quota disk '))).toBeUndefined();
  });
});
