import { describe, expect, it } from 'vitest';
import { byteRate, sampleOf, usageOf, type Metrics } from './rates';

const reading = (second: number, of: Partial<Metrics> = {}): Metrics => ({
  at: new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString(),
  cpu_seconds: 0,
  memory_bytes: 0,
  disk_read_bytes: 0,
  disk_written_bytes: 0,
  net_received_bytes: 0,
  net_sent_bytes: 0,
  ...of,
});

describe('sampleOf', () => {
  it('knows no rates from one reading, but the memory', () => {
    expect(sampleOf(undefined, reading(1, { memory_bytes: 3 * 2 ** 20, cpu_seconds: 9 }))).toMatchObject({ memoryMiB: 3, cpu: null, read: null, sent: null });
  });

  it('gives processors in percent of one, and bytes in kilobytes per second', () => {
    const before = reading(0, { cpu_seconds: 10, disk_read_bytes: 1000, disk_written_bytes: 0, net_received_bytes: 5000, net_sent_bytes: 0 });
    const after = reading(2, { cpu_seconds: 13, disk_read_bytes: 5000, disk_written_bytes: 2000, net_received_bytes: 5000, net_sent_bytes: 1 });
    expect(sampleOf(before, after)).toMatchObject({ cpu: 150, read: 2, written: 1, received: 0, sent: 0.0005 });
  });

  it('knows no rate of a counter that went back, since the VM began anew', () => {
    const sample = sampleOf(reading(0, { cpu_seconds: 50, net_sent_bytes: 100 }), reading(2, { cpu_seconds: 1, net_sent_bytes: 100 }));
    expect(sample).toMatchObject({ cpu: null, sent: 0 });
  });

  it('leaves out readings that are too near, or out of order', () => {
    expect(sampleOf(reading(2), reading(2))).toBeNull();
    expect(sampleOf(reading(2), reading(1))).toBeNull();
  });
});

describe('usageOf', () => {
  it('has the units of samples', () => {
    expect(usageOf({ at: '', cpu_percent: 150, memory_bytes: 3 * 2 ** 20, disk_read_bytes_per_second: 2000, disk_written_bytes_per_second: 1000, net_received_bytes_per_second: 0, net_sent_bytes_per_second: 0.5 })).toEqual({ cpu: 150, memoryMiB: 3, read: 2, written: 1, received: 0, sent: 0.0005 });
  });
});

describe('byteRate', () => {
  it.each([
    [0, '0 kB/s'],
    [0.5, '0.5 kB/s'],
    [999, '999 kB/s'],
    [1500, '1.5 MB/s'],
    [2_500_000, '2.5 GB/s'],
  ])('%d kB/s are %s', (n, text) => expect(byteRate(n)).toBe(text));
});
