import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { callerOf, classOf, nobodys } from './api';

describe('who may do what', () => {
  it('needs a caller without a tenant where the service needs one', () => {
    const gate = readFileSync(join(import.meta.dirname, '../../../service/storage/gate/gate.go'), 'utf8');
    const table = /var nobodys = map\[string\]bool\{([^}]*)\}/.exec(gate)?.[1] ?? '';
    const served = [...table.matchAll(/"(\w+)": true/g)].map((m) => m[1]);
    expect(served.length).toBeGreaterThan(0);
    expect([...nobodys].sort()).toEqual(served.sort());
  });

  it('calls an operator a user of the shared rules', () => {
    expect(classOf('CreateVolume')).toBe('user');
    expect(classOf('DiscoverBackend')).toBe('global-user');
    expect(classOf('DeleteVolume')).toBe('admin');
    expect(classOf('PutTenant')).toBe('global-admin');
    expect(callerOf({ name: 'olga', note: '', access: 'operator', tenant: 'acme' })).toMatchObject({ role: 'user', org_id: 'acme' });
  });

  it('lets nobody do anything whose role is not known', () => {
    expect(callerOf({ name: 'x', note: '' })).toMatchObject({ role: '', org_id: '' });
  });
});
