import { describe, expect, it } from 'vitest';
import type { Backend, VIP } from './api';
import { bitRate, byteCount, ratesBetween, type Reading } from './rates';

const backend = (id: number, packets: number): Backend => ({
  id, address: '10.0.0.1', port: 80, weight: 1, weightOverridden: false, healthy: true, state: 'healthy', adminDraining: false, detail: '', packets, bytes: 100 * packets,
});

const vip = (name: string, packets: number, flows: number, backends: Backend[], lost = 0): VIP => ({
  name, vipAddress: '192.0.2.1', vipPort: 80, protocol: 'tcp', mode: 'nat', interface: 'eth0', startedAt: '2026-01-01T00:00:00Z',
  packets, bytes: 100 * packets, flows, dropped: 7, droppedRateLimited: lost, droppedNoBackend: lost, unserved: lost, announced: true, bgpCommunities: [], bgpPeers: [], backends,
});

const reading = (at: number, vips: VIP[], drops: Record<string, number> = {}): Reading => ({
  at,
  vips,
  node: {
    interface: 'eth0', backendInterfaces: [], xdpMode: 'generic', attached: true, xdpModeAttached: 'generic', version: '', startedAt: '2026-01-01T00:00:00Z', notReady: '', insecure: false,
    config: { path: '', loadedAt: '2026-01-01T00:00:00Z', error: '', errorAt: null }, drops, flows: { entries: 0, evictions: 0, lostReplies: 0 }, bgp: [], orchestratorDrains: [],
  },
});

describe('ratesBetween', () => {
  it('divides what was counted by the time that passed', () => {
    const rates = ratesBetween(
      reading(100, [vip('a', 1000, 10, [backend(1, 600)]), vip('b', 0, 0, [])], { no_backend: 5, ttl: 1 }),
      reading(102, [vip('a', 1400, 16, [backend(1, 900)], 2), vip('b', 100, 4, [])], { no_backend: 11, ttl: 1 }),
    );
    expect(rates).toMatchObject({ at: 102, packets: 250, bytes: 25_000, flows: 5, dropped: 3 });
    expect(rates?.vips.get('a')).toEqual({ packets: 200, bytes: 20_000, flows: 3, dropped: 3 });
    expect(rates?.backends.get(1)).toEqual({ packets: 150, bytes: 15_000 });
    expect(Object.fromEntries(rates?.drops ?? [])).toEqual({ no_backend: 3, ttl: 0 });
  });

  it('counts a backend of several VIPs once', () => {
    const rates = ratesBetween(reading(0, [vip('a', 0, 0, [backend(1, 0)]), vip('b', 0, 0, [backend(1, 0)])]), reading(1, [vip('a', 5, 0, [backend(1, 10)]), vip('b', 5, 0, [backend(1, 10)])]));
    expect([...(rates?.backends ?? [])]).toEqual([[1, { packets: 10, bytes: 1000 }]]);
    expect(rates?.packets).toBe(10);
  });

  it('says nothing of what is new or began anew, and leaves it out of the sums', () => {
    const rates = ratesBetween(
      reading(0, [vip('kept', 100, 0, [backend(1, 50)]), vip('again', 9000, 90, [])], { ttl: 400 }),
      reading(1, [vip('kept', 110, 0, [backend(1, 60), backend(2, 7000)]), vip('again', 20, 2, []), vip('new', 5000, 50, [])], { ttl: 3 }),
    );
    expect([...(rates?.vips.keys() ?? [])]).toEqual(['kept']);
    expect([...(rates?.backends.keys() ?? [])]).toEqual([1]);
    expect(rates).toMatchObject({ packets: 10, flows: 0, dropped: 0 });
  });

  it('is nothing when too little time has passed, or the clock went back', () => {
    const was = reading(10, [vip('a', 0, 0, [])]);
    expect(ratesBetween(was, reading(10, was.vips as VIP[]))).toBeNull();
    expect(ratesBetween(was, reading(10.2, was.vips as VIP[]))).toBeNull();
    expect(ratesBetween(was, reading(9, was.vips as VIP[]))).toBeNull();
  });
});

describe('units', () => {
  it.each([
    [0, '0 bit/s'],
    [1, '8 bit/s'],
    [1500, '12 kbit/s'],
    [124_999, '1 Mbit/s'],
    [156_250_000, '1.3 Gbit/s'],
  ])('%d bytes a second are %s', (n, text) => expect(bitRate(n)).toBe(text));

  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1500, '1.5 kB'],
    [2_500_000_000, '2.5 GB'],
  ])('%d bytes are %s', (n, text) => expect(byteCount(n)).toBe(text));
});
