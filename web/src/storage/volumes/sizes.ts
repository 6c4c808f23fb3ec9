/** Sizes in forms: people write them with a unit, requests have bytes. */
import { DraftError, type FieldSpec } from '../../ui/draft';
import { exactSize, parseSize } from '../../ui/size';

/** A field for a size in bytes. */
export const sizeField = (name: string, label: string, more: Partial<FieldSpec> = {}): FieldSpec => ({
  name,
  label,
  kind: 'text',
  placeholder: '10 GiB',
  hint: 'With its unit, as in 500 MiB or 10 GiB',
  read: (text) => {
    const size = parseSize(String(text));
    if (size === undefined) throw new DraftError('Write a number with its unit, as in 500 MiB or 10 GiB.');
    return size;
  },
  show: (size) => exactSize(Number(size)),
  ...more,
});

/** The field, for a size that is at least so many bytes. */
export const atLeast = (field: FieldSpec, least: number): FieldSpec => ({
  ...field,
  read: (text) => {
    const size = field.read?.(text);
    if (Number(size) < least) throw new DraftError(`Must be at least ${exactSize(least)}.`);
    return size;
  },
});
