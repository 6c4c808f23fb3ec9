import { describe, expect, it } from 'vitest';
import { lacking, sizeOf } from './sizes';

describe('sizeOf', () => {
  it('takes what a named size has, and what was typed only for another one', () => {
    expect(sizeOf({ size: 'medium', cpus: 7, memory: 7 })).toEqual({ cpus: 2, memory: 2048 });
    expect(sizeOf({ size: 'custom', cpus: 3, memory: 300 })).toEqual({ cpus: 3, memory: 300 });
    expect(sizeOf({ size: 'custom' })).toEqual({});
  });
});

describe('lacking', () => {
  const used = { vms: 3, cpus: 6, memory: 4096, disk: 10, snapshots: 0, backup_bytes: 0, users: 1 };
  const wanted = { vms: 1, cpus: 2, memory: 512, disk: 0 };
  it('knows only of limits that there are', () => {
    expect(lacking({ quota: {}, used }, wanted)).toEqual([]);
    expect(lacking({ quota: { vms: 3, memory: 8192 }, used }, wanted).map(({ of, left, wanted: w }) => [of, left, w])).toEqual([
      ['vms', 0, 1],
      ['memory', 4096, 512],
    ]);
  });
  it('does not hide that more is used than allowed', () => {
    expect(lacking({ quota: { cpus: 4 }, used }, wanted)[0]?.left).toBe(-2);
  });
});
