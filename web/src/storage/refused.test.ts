import { expect, it } from 'vitest';
import { ApiError } from '../ui/problem';
import { expansionField, volumeField } from './refused';

const refusal = (message: string) => new ApiError(409, 'CONFLICT', message);

it.each([
  ['there is a volume of this name already', 'name'],
  ['there is a volume named data already, of the kind block and created with 1 bytes', 'name'],
  ['the volume has a snapshot named before already', 'name'],
  ['quota bytes of tenant acme: 5 bytes of volumes requested, 1 of 4 left', 'size_bytes'],
  ['the volume is creating; wait until its job has ended', undefined],
])('“%s” is about %s', (message, field) => expect(volumeField(refusal(message))).toBe(field));

it('the form that expands a volume asks for its size only', () => {
  expect(expansionField(refusal('quota bytes of tenant acme: no'))).toBe('new_size_bytes');
  expect(expansionField(refusal('there is a volume of this name already'))).toBeUndefined();
  expect(expansionField(new Error('quota bytes '))).toBeUndefined();
});
