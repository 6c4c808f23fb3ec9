import { describe, expect, it } from 'vitest';
import { mib, bytes } from '../ui/size';
import { bits, given, left, networkLimits, uptime } from './format';
import { alive, atRest, changeable, may, resettable, nodeText, operationTitle, signatureText, states, underWay } from './states';
import { refusedField } from './refused';
import { bootsNothing } from './vms/create';
import { ApiError } from '../ui/problem';

describe('what one may do with a VM', () => {
  it('follows from its state', () => {
    expect(states.filter((s) => may(s, 'start'))).toEqual(['stopped', 'failed']);
    expect(states.filter((s) => may(s, 'pause'))).toEqual(['running']);
    expect(states.filter((s) => may(s, 'resume'))).toEqual(['paused']);
    expect(states.filter((s) => may(s, 'stop'))).toEqual(['running', 'paused', 'starting', 'stopping']);
    expect(states.filter((s) => may(s, 'restart'))).toEqual(['running', 'paused', 'stopping']);
    expect(states.filter((s) => resettable({ state: s, backend: 'qemu' }))).toEqual(['running']);
    expect(resettable({ state: 'running', backend: 'sandbox' })).toBe(false);
    expect(states.filter((s) => !may(s, 'delete'))).toEqual([]);
    expect(states.filter((s) => may(s, 'clone'))).toEqual(['running', 'paused', 'stopped', 'failed']);
    expect(states.filter(alive)).toEqual(['running', 'paused']);
    expect(states.filter(atRest)).toEqual(['stopped', 'failed']);
  });
  it('changes disks of QEMU, while the VM runs or rests', () => {
    expect(states.filter((state) => changeable({ state, backend: 'qemu' }))).toEqual(['running', 'paused', 'stopped', 'failed']);
    expect(states.filter((state) => changeable({ state, backend: 'sandbox' }))).toEqual([]);
  });
});

describe('words', () => {
  it('say what a signature is worth', () => {
    expect([null, true, false].map((signature_valid) => signatureText({ signature_valid }).text)).toEqual(['none', 'valid', 'not valid']);
  });
  it('say how a node is, silence first', () => {
    expect(nodeText({ healthy: true, cordoned: false })).toEqual({ tone: 'ok', text: 'healthy' });
    expect(nodeText({ healthy: true, cordoned: true })).toEqual({ tone: 'warn', text: 'cordoned' });
    expect(nodeText({ healthy: false, cordoned: true })).toEqual({ tone: 'bad', text: 'silent, cordoned' });
  });
  it('name operations', () => {
    const o = { id: '', state: 'running', progress: 0.5, created_at: '', error: '' } as const;
    expect(operationTitle({ ...o, kind: 'image.add', image: 'demo' })).toBe('Image demo');
    expect(operationTitle({ ...o, kind: 'migrate' })).toBe('migrate');
    expect(underWay({ ...o, kind: 'backup' })).toBe(true);
    expect(underWay({ ...o, kind: 'backup', state: 'failed' })).toBe(false);
  });
});

describe('a new VM', () => {
  it('is said to boot nothing without an image and a kernel', () => {
    expect(bootsNothing({ name: 'x' })).toContain('boots nothing');
    expect(bootsNothing({ image: 'demo' })).toBeUndefined();
    expect(bootsNothing({ kernel: '/boot/vmlinuz' })).toBeUndefined();
  });
});

describe('figures', () => {
  it('never say that less than nothing is left: what was overcommitted is said as such', () => {
    expect(left(8, 3, String)).toEqual({ value: '3', note: 'of 8', bad: false });
    expect(left(8, -2, String)).toEqual({ value: '0', note: 'overcommitted: 10 given of 8', bad: true });
  });
  it('have binary units', () => {
    expect([0, 1023, 1536, 17_009_068].map(bytes)).toEqual(['0 B', '1,023 B', '1.5 KiB', '16.2 MiB']);
    expect([512, 1024, 1536].map(mib)).toEqual(['512 MiB', '1 GiB', '1.5 GiB']);
  });
  it('say how long a VM has been up, and nothing while it is down', () => {
    const started_at = '2026-01-01T00:00:00Z';
    const now = Date.parse(started_at) + 5400_000;
    expect(uptime({ state: 'running', started_at }, now)).toBe('1 h 30 min');
    expect(uptime({ state: 'stopped', started_at }, now)).toBe('');
    expect(uptime({ state: 'running' }, now)).toBe('');
  });
  it('fill a bar to its end when more is given than there is', () => {
    expect(given(4, 1)).toEqual({ used: 3, share: 0.75, over: false });
    expect(given(2, -3)).toEqual({ used: 5, share: 1, over: true });
    expect(given(0, 0)).toEqual({ used: 0, share: 0, over: false });
  });
});

describe('refusedField', () => {
  const refused = (limit?: string, field?: string) => new ApiError(400, 'policy_limit', 'too much', field, 'r', limit);
  it('puts a limit of the policy at the field that exceeds it', () => {
    const found = (['policy.max_vcpus', 'policy.max_memory_mib', 'policy.tenants[a].max_vcpus_total', 'policy.max_ttl_seconds', 'policy.allowed_image_dirs', 'policy.allowed_backends', 'policy.tenants[a].max_vms_total'] as const).map((l) => refusedField(refused(l)));
    expect(found).toEqual(['vcpus', 'memory_mib', 'vcpus', 'ttl_seconds', 'image', 'backend', undefined]);
  });
  it('puts a name that is taken, and an image that is locked, at its field', () => {
    expect(['name_taken', 'serial_taken', 'image_locked', 'too_many_disks'].map((code) => refusedField(new ApiError(409, code, 'no')))).toEqual(['name', 'serial', 'image', undefined]);
  });
  it('leaves the field that the daemon names', () => {
    expect(refusedField(refused('policy.max_vcpus', 'disk_gib'))).toBe('disk_gib');
    expect(refusedField(new Error('no'))).toBeUndefined();
  });
});

describe('limits', () => {
  it('are said in units, and not at all where there are none', () => {
    expect([0, 999, 1_500_000, 999_960_000, 2e10].map(bits)).toEqual(['0 bit/s', '999 bit/s', '1.5 Mbit/s', '1 Gbit/s', '20 Gbit/s']);
    expect(networkLimits({ receive_bits_per_second: 1e8, send_bits_per_second: 0 })).toBe('receives at most 100 Mbit/s');
    expect(networkLimits({})).toBe('');
  });
});
