import { expect, it } from 'vitest';
import { ApiError } from '../ui/problem';
import { bucketField, expansionField, groupField, imageField, volumeField } from './refused';

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

it.each([
  ['the pool has an image disk already', 'name'],
  ['the volume has a snapshot named before already', 'name'],
  ['quota bytes of tenant acme: no', 'size_bytes'],
  ['the volume is creating; wait until its job has ended', undefined],
])('of an image, “%s” is about %s', (message, field) => expect(imageField(refusal(message))).toBe(field));

it.each([
  ['there is a group of this name already, or one of the volumes is in another group', 'name'],
  ['the group has a snapshot named before already', 'name'],
  ['the volume data is in the group db', 'volume_ids'],
  ['the group has 2 snapshots; delete them first', undefined],
])('of a group, “%s” is about %s', (message, field) => expect(groupField(refusal(message))).toBe(field));

it.each([
  ['there is a bucket named logs already, which was made in another way', 'name'],
  ['the bucket of the entry offsite was taken in already', 'connection_ref'],
  ['the bucket is pending; wait until its job has ended', undefined],
])('of a bucket, “%s” is about %s', (message, field) => expect(bucketField(refusal(message))).toBe(field));
