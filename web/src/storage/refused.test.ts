import { expect, it } from 'vitest';
import { ApiError } from '../ui/problem';
import { bytesAt } from './refused';

const refusal = (limit?: string) => new ApiError(403, 'QUOTA_EXCEEDED', 'no', undefined, undefined, limit);

it('a quota of bytes is about the size that a form asks for', () => {
  expect(bytesAt('new_size_bytes')(refusal('bytes'))).toBe('new_size_bytes');
  expect(bytesAt('new_size_bytes')(refusal('volumes'))).toBeUndefined();
  expect(bytesAt('new_size_bytes')(new Error('bytes'))).toBeUndefined();
});
