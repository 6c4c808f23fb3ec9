import { describe, expect, it } from 'vitest';
import { retentionText, scheduleText } from './policy';

describe('a backup policy in words', () => {
  const p = { schedule_type: 'daily', time: '02:00', timezone: 'Europe/Berlin', weekday: 'sunday', day: 31 } as const;
  it('names its zone, and what happens in short months', () => {
    expect(scheduleText(p)).toBe('Every day at 02:00, Europe/Berlin');
    expect(scheduleText({ ...p, schedule_type: 'weekly' })).toBe('Every Sunday at 02:00, Europe/Berlin');
    expect(scheduleText({ ...p, schedule_type: 'monthly' })).toBe('Day 31 of each month, or its last at 02:00, Europe/Berlin');
  });
  it('says what is kept', () => {
    const none = { retention_days: 0, keep_last: 0, keep_daily: 0, keep_weekly: 0, keep_monthly: 0 };
    expect(retentionText(none)).toBe('all of them');
    expect(retentionText({ ...none, retention_days: 1 })).toBe('for 1 day');
    expect(retentionText({ ...none, keep_daily: 7, keep_weekly: 4, retention_days: 90 })).toBe('7 daily, 4 weekly; for 90 days');
  });
});
