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

/** The field, for a size that is also held against something. `wrong` says what is wrong with it. */
export const checked = (field: FieldSpec, wrong: (size: number) => string | undefined): FieldSpec => ({
  ...field,
  read: (text) => {
    const size = field.read?.(text);
    const problem = wrong(Number(size));
    if (problem !== undefined) throw new DraftError(problem);
    return size;
  },
});
