import { expect, it } from 'vitest';
import { parentOf } from './parent';

it.each([
  ['rbd/disk@before', { pool: 'rbd', image: 'disk', snapshot: 'before' }],
  ['a.b c/d-1@x:y', { pool: 'a.b c', image: 'd-1', snapshot: 'x:y' }],
  ['', undefined],
  ['rbd/disk', undefined],
])('%s', (text, parent) => expect(parentOf(text)).toEqual(parent));
