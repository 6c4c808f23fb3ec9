import { expect, it } from 'vitest';
import { schemas, type Schedule } from '../api';
import { validate } from '../../ui/schema';
import { firstRun, specOf } from './spec';

const schedule: Schedule = {
  id: 's1',
  tenant_id: 'acme',
  name: 'nightly',
  kind: 'backup',
  enabled: true,
  volume_id: 'v1',
  bucket_id: 'b1',
  mode: 'data',
  full_every: 30,
  every_secs: 86_400,
  keep: 30,
  max_age_secs: 0,
  created_at: '2026-01-01T00:00:00Z',
  next_at: null,
  last_at: '2026-01-02T00:00:00Z',
  last_job_id: 'j1',
  last_error: 'no',
};

it('what is sent back is a whole schedule, and what the service allows', () => {
  const spec = specOf(schedule, false);
  expect(spec).toEqual({ name: 'nightly', kind: 'backup', enabled: false, volume_id: 'v1', bucket_id: 'b1', mode: 'data', full_every: 30, every_secs: 86_400, keep: 30, max_age_secs: 0 });
  expect(validate(schemas.UpdateSchedule, spec)).toEqual([]);
});

it('a schedule without a time to count from runs as soon as it is enabled', () => {
  expect(firstRun(schedule)).toBe('at once');
  expect(firstRun({ first_at: '2026-01-01T03:00:00Z' })).toBe('at the next of its times');
});
