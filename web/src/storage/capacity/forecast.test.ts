import { describe, expect, it } from 'vitest';
import { ahead, aheadDays, growthText, isKnown } from './forecast';

describe('growthText', () => {
  it('has the growth of a day with its error', () => {
    expect(growthText({ days: 30, growth_bytes_per_day: 1.5 * 2 ** 30, error_bytes_per_day: 2 ** 20 })).toBe('+1.5 GiB a day, ± 1 MiB');
    expect(growthText({ days: 3, growth_bytes_per_day: -1024, error_bytes_per_day: 0 })).toBe('−1 KiB a day, ± 0 B');
  });

  it('says nothing of less than three days', () => {
    expect(isKnown({ days: 2 })).toBe(false);
    expect(growthText({ days: 2, growth_bytes_per_day: 5, error_bytes_per_day: 0 })).toBe('not known yet');
  });
});

describe('ahead', () => {
  const cluster = { raw_capacity_bytes: 1000, used_capacity_bytes: 500 };
  it('goes on from now, in days, between the smallest and the largest growth', () => {
    const lines = ahead(cluster, { growth_bytes_per_day: 4, error_bytes_per_day: 1 }, 1_000_000);
    expect(lines.times).toHaveLength(aheadDays + 1);
    expect([lines.times[0], lines.times[1]]).toEqual([1_000_000, 1_086_400]);
    expect([lines.least[10], lines.likely[10], lines.most[10], lines.capacity[10]]).toEqual([530, 540, 550, 1000]);
  });

  it('is never more than full, nor less than empty', () => {
    expect(ahead(cluster, { growth_bytes_per_day: 100, error_bytes_per_day: 0 }, 0).likely.at(-1)).toBe(1000);
    expect(ahead(cluster, { growth_bytes_per_day: -100, error_bytes_per_day: 0 }, 0).likely.at(-1)).toBe(0);
  });
});
