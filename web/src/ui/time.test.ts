import { describe, expect, it } from 'vitest';
import { ago, duration, past } from './time';

const now = Date.parse('2026-03-01T12:00:00Z');

describe('ago', () => {
  it.each([
    ['2026-03-01T12:00:01Z', 'now'],
    ['2026-03-01T11:59:30Z', '30 sec. ago'],
    ['2026-03-01T11:58:59Z', '1 min. ago'],
    ['2026-03-01T09:00:00Z', '3 hr. ago'],
    ['2026-02-28T12:00:00Z', 'yesterday'],
    ['2026-04-30T12:00:00Z', 'in 2 mo.'],
    ['2024-01-01T00:00:00Z', '2 yr. ago'],
  ])('%s is %s', (time, said) => {
    expect(ago(time, now)).toBe(said);
  });
});

describe('past', () => {
  it.each([
    ['2026-03-01T12:00:34Z', 'now'],
    ['2026-03-02T12:00:00Z', 'now'],
    ['2026-03-01T11:59:30Z', '30 sec. ago'],
  ])('a clock that goes ahead makes nothing happen in the future: %s is %s', (time, said) => {
    expect(past(time, now)).toBe(said);
  });
});

describe('duration', () => {
  it.each([[0, '0 s'], [59, '59 s'], [60, '1 min'], [5400, '1 h 30 min'], [90_061, '1 d 1 h']])('%d s is %s', (seconds, said) => {
    expect(duration(seconds)).toBe(said);
  });
});
