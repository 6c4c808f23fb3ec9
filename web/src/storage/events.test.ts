import { expect, it } from 'vitest';
import { eventPath } from './events';

it.each([
  ['job', 'job-1', '/jobs/1'],
  ['job', '1', undefined],
  ['alert', 'alert-a-1', '/alerts?state=all'],
  ['audit', 'audit-1', undefined],
] as const)('an event of the type %s with the id %s leads to %s', (type, id, path) => expect(eventPath({ id, type })).toBe(path));
