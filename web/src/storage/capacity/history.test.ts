import { expect, it } from 'vitest';
import { levelText, measuredOf } from './history';

const point = { at: '2026-01-01T00:00:00Z', raw_capacity_bytes: 10, used_capacity_bytes: 4 };

it('health is a level, and unknown is none, so that the line is interrupted', () => {
  expect(measuredOf({ ...point, health: 'warning' })).toEqual({ used: 4, capacity: 10, health: 1 });
  expect(measuredOf({ ...point, health: 'unknown' }).health).toBeNull();
});

it('the axis has words at the levels only', () => {
  expect([0, 0.5, 1, 2, 3].map(levelText)).toEqual(['ok', '', 'warning', 'error', '']);
});
