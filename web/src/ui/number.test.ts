import { describe, expect, it } from 'vitest';
import { short } from './number';

describe('short', () => {
  it.each([
    [0, '0'],
    [0.0004, '0'],
    [0.0123, '0.012'],
    [0.126, '0.13'],
    [0.5, '0.5'],
    [1.25, '1.3'],
    [123.4, '123'],
    [12_345, '12.3K'],
  ])('%d is %s', (n, text) => expect(short(n)).toBe(text));
});
