import { describe, expect, it } from 'vitest';
import { jobText, may, mayDeleteBackup, restorable, silenced, troubled, worst } from './states';

describe('worst', () => {
  it('is the worst of all conditions; what is not known is worse than a warning', () => {
    expect(worst(['ok', 'unknown', 'warning'])).toBe('unknown');
    expect(worst(['ok', 'error', 'unknown'])).toBe('error');
    expect(worst([])).toBeUndefined();
  });
});

describe('may', () => {
  it('follows the state of a volume', () => {
    expect(may({ state: 'available', managed: true }, 'expand')).toBe(true);
    expect(may({ state: 'in-use', managed: true }, 'delete')).toBe(false);
    expect(may({ state: 'error', managed: true }, 'snapshot')).toBe(false);
    expect(may({ state: 'error', managed: true }, 'delete')).toBe(true);
    expect(may({ state: 'deleting', managed: true }, 'delete')).toBe(false);
  });

  it('allows nothing for what the gateway did not make', () => {
    for (const verb of ['expand', 'snapshot', 'backup', 'delete'] as const) expect(may({ state: 'available', managed: false }, verb)).toBe(false);
  });
});

describe('jobText', () => {
  it('does not call a job that was cancelled a failure', () => {
    expect(jobText({ state: 'failed', error: { code: 'CANCELLED', message: '' } })).toEqual({ tone: 'warn', text: 'cancelled' });
    expect(jobText({ state: 'failed', error: { code: 'STORAGE_FAILED', message: '' } })).toEqual({ tone: 'bad', text: 'failed' });
  });
});

it('somebody must look at what failed and at what is missing', () => {
  expect(troubled).toEqual(['error', 'error_deleting', 'error_expanding', 'missing']);
});

it('a silence that is over silences nothing', () => {
  const until = '2026-01-01T12:00:00Z';
  expect(silenced({ silenced_until: until }, Date.parse(until) - 1)).toBe(true);
  expect(silenced({ silenced_until: until }, Date.parse(until))).toBe(false);
  expect(silenced({ silenced_until: null }, 0)).toBe(false);
});

it('only a completed backup with data is restored, and one that is being made is not deleted', () => {
  expect(restorable({ state: 'completed', mode: 'data' })).toBe(true);
  expect(restorable({ state: 'completed', mode: 'manifest' })).toBe(false);
  expect(restorable({ state: 'verifying', mode: 'data' })).toBe(false);
  expect(mayDeleteBackup({ state: 'failed' })).toBe(true);
  expect(mayDeleteBackup({ state: 'uploading' })).toBe(false);
});
