import { describe, expect, it } from 'vitest';
import type { Overview } from './api';
import { rateBetween, ratesOf } from './rates';

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

describe('ratesOf', () => {
  it('divides the counts of a step by its length', () => {
    const step = { at: '2026-01-01T10:00:00Z', events: 600, delivered: 300, failed_attempts: 30, dead_lettered: 3 };
    expect(ratesOf(step, 300)).toEqual({ events: 2, delivered: 1, failed: 0.1, dead: 0.01 });
    expect(ratesOf({ at: step.at, delivered: 300, failed_attempts: 0, dead_lettered: 0 }, 300)).toMatchObject({ events: 0, delivered: 1 });
  });
});
