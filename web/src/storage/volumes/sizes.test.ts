import { expect, it } from 'vitest';
import { checked, sizeField } from './sizes';

it('a size is read with its unit, and shown as it was written', () => {
  const field = sizeField('size', 'Size');
  expect(field.read?.('10 GiB')).toBe(10 * 2 ** 30);
  expect(field.show?.(10 * 2 ** 30)).toBe('10 GiB');
  expect(() => field.read?.('12')).toThrow('Write a number with its unit');
});

it('a size is held against another one', () => {
  const field = checked(sizeField('size', 'Size'), (size) => (size < 1024 ? 'Must be at least 1 KiB.' : undefined));
  expect(field.read?.('1 KiB')).toBe(1024);
  expect(() => field.read?.('1023 B')).toThrow('Must be at least 1 KiB.');
  expect(() => field.read?.('much')).toThrow('Write a number with its unit');
});
