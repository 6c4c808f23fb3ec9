import { describe, expect, it } from 'vitest';
import type { Overview } from './api';
import { lastHour, rateBetween } from './rates';

const overview = (at: string, minutes: Record<string, number>): Overview => ({
  generated_at: at,
  orgs: 0,
  sites: {},
  devices: 0,
  ota: {},
  campaigns: {},
  deployments: {},
  routes: {},
  routes_failing: 0,
  deadletters: 0,
  alerts: {},
  policy_packs: {},
  deliveries_pending: 0,
  rates: Object.entries(minutes).map(([minute, events]) => ({ minute, events, delivered: 2 * events, failed_attempts: 0, dead_lettered: 0 })),
});

describe('rateBetween', () => {
  const before = overview('2026-01-01T10:00:50Z', { '2026-01-01T09:00:00Z': 900, '2026-01-01T10:00:00Z': 100 });
  it('counts what came within a minute and over its edge', () => {
    const after = overview('2026-01-01T10:01:10Z', { '2026-01-01T09:00:00Z': 900, '2026-01-01T10:00:00Z': 140, '2026-01-01T10:01:00Z': 60 });
    expect(rateBetween(before, after)).toMatchObject({ events: 5, delivered: 10, failed: 0 });
  });
  it('is not misled by a minute that leaves the hour, or by one that was not shown before', () => {
    expect(rateBetween(before, overview('2026-01-01T10:01:00Z', { '2026-01-01T10:00:00Z': 110 }))).toMatchObject({ events: 1 });
    expect(rateBetween(before, overview('2026-01-01T10:01:00Z', { '2026-01-01T09:30:00Z': 500, '2026-01-01T10:00:00Z': 110 }))).toMatchObject({ events: 1 });
  });
  it('is nothing when no time has passed', () => {
    expect(rateBetween(before, before)).toBeNull();
  });
});

describe('lastHour', () => {
  it('has all minutes that have ended, those in which nothing happened too', () => {
    const hour = lastHour(overview('2026-01-01T10:00:50Z', { '2026-01-01T09:58:00Z': 7 }));
    expect(hour.times).toHaveLength(59);
    expect(hour.times[0]).toBe(Date.parse('2026-01-01T09:01:00Z') / 1000);
    expect(hour.events.slice(-4)).toEqual([0, 0, 7, 0]);
  });
  it('does not end in a fall because the present minute has just begun', () => {
    const hour = lastHour(overview('2026-01-01T10:00:02Z', { '2026-01-01T09:58:00Z': 60, '2026-01-01T09:59:00Z': 60, '2026-01-01T10:00:00Z': 2 }));
    expect(hour.times.at(-1)).toBe(Date.parse('2026-01-01T09:59:00Z') / 1000);
    expect(hour.events.slice(-2)).toEqual([60, 60]);
  });
});
