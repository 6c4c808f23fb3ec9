import { describe, expect, it } from 'vitest';
import { exactSize, parseSize } from './size';

describe('parseSize', () => {
  it.each([
    ['10 GiB', 10 * 2 ** 30],
    ['500M', 500 * 2 ** 20],
    ['1.5 tb', 1.5 * 2 ** 40],
    [' 512 b ', 512],
    ['1kib', 1024],
  ])('reads %s', (text, size) => expect(parseSize(text)).toBe(size));

  it.each(['10', '', 'GiB', '-1 GiB', '0 GiB', '1 XB', '10 Gi', '1,5 GiB', '99999999 PiB', '1e3 MiB'])('does not take %s', (text) => expect(parseSize(text)).toBeUndefined());
});

it('exact sizes are read back as they were', () => {
  for (const n of [1, 1023, 1024, 1536, 2 ** 30, 3 * 2 ** 30, 2 ** 30 + 1, 2 ** 50]) expect(parseSize(exactSize(n))).toBe(n);
  expect(exactSize(3 * 2 ** 30)).toBe('3 GiB');
});
