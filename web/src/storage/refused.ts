/** Which field of a form a refusal is about, where the service says it in words only. */
import { ApiError } from '../ui/problem';

const about: readonly [RegExp, string][] = [
  [/^there is a volume (of this name|named )/, 'name'],
  [/^the volume has a snapshot named /, 'name'],
  [/^quota bytes /, 'size_bytes'],
];

/** The field of a form for a volume or a snapshot. */
export function volumeField(error: unknown): string | undefined {
  return error instanceof ApiError ? about.find(([words]) => words.test(error.message))?.[1] : undefined;
}

/** The field of a form for an image or a snapshot of one. */
export const imageField = (error: unknown) => (error instanceof ApiError && /^the (pool has an image|volume has a snapshot named) /.test(error.message) ? 'name' : volumeField(error));

/** The field of a form for a group or a snapshot of one. */
export const groupField = (error: unknown) =>
  !(error instanceof ApiError) ? undefined : /^(there is a group of this name|the group has a snapshot named) /.test(error.message) ? 'name' : /^the volume \S+ is in the group /.test(error.message) ? 'volume_ids' : undefined;

/** The field of a form for a bucket. */
export const bucketField = (error: unknown) =>
  !(error instanceof ApiError) ? undefined : error.message.startsWith('there is a bucket named ') ? 'name' : error.message.startsWith('the bucket of the entry ') ? 'connection_ref' : undefined;

/** The field of a form for a schedule. */
export const scheduleField = (error: unknown) => (error instanceof ApiError && error.message.startsWith('there is a schedule named ') ? 'name' : undefined);

/** The field of the form that expands a volume. */
export const expansionField = (error: unknown) => (volumeField(error) === 'size_bytes' ? 'new_size_bytes' : undefined);
