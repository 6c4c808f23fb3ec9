import { describe, expect, it } from 'vitest';
import { changedOf } from './changed';

describe('changedOf', () => {
  it('leaves out what is as before, also lists and maps', () => {
    const vm = { name: 'web', cpus: 1, tags: ['a', 'b'], labels: { role: 'web' }, state: 'running' };
    expect(changedOf(vm, { ...vm })).toEqual({});
    expect(changedOf(vm, { name: 'web', cpus: 2, tags: ['a'], labels: {} })).toEqual({ cpus: 2, tags: ['a'], labels: {} });
  });
});
