import { expect, it } from 'vitest';
import { folderAbove } from './objects';

it.each([
  ['a/b/', 'a/'],
  ['a/', ''],
  ['', ''],
])('above “%s” is “%s”', (prefix, above) => expect(folderAbove(prefix)).toBe(above));
