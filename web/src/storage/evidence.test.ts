import { expect, it } from 'vitest';
import { adviceFor, evidenceOf } from './evidence';

it('evidence has its units', () => {
  expect(evidenceOf({ used_percent: 91, used_bytes: 2 ** 30, growth_bytes_per_day: 1536, health: 'warning' })).toEqual([
    ['used', '91 %'],
    ['used', '1 GiB'],
    ['growth per day', '1.5 KiB'],
    ['health', 'warning'],
  ]);
});

it('what a limit counts is in its unit', () => {
  expect(evidenceOf({ limit: 'bytes', used: 2 ** 30, max: 2 ** 31 })).toEqual([['limit', 'bytes'], ['used', '1 GiB'], ['max', '2 GiB']]);
  expect(evidenceOf({ limit: 'volumes', used: 9, max: 10 })).toEqual([['limit', 'volumes'], ['used', '9'], ['max', '10']]);
});

it('an alert of an unknown source has no advice', () => expect(adviceFor('new')).toBe(''));
