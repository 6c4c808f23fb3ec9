import { describe, expect, it } from 'vitest';
import { validate } from '../../ui/schema';
import { schemas } from '../api';
import { proposed } from './upload';

describe('the proposed name of an image', () => {
  it.each([
    ['debian-12.qcow2', 'debian-12'],
    ['Windows Server (2022).VHDX', 'Windows-Server-2022'],
    ['.hidden_.raw', 'hidden'],
    ['a:b.img', 'a:b'],
  ])('of %s is %s, which the contract takes', (file, name) => {
    expect(proposed(file)).toBe(name);
    expect(validate(schemas.AddImage, { name })).toEqual([]);
  });
  it('is empty when nothing of the file’s can be used', () => {
    expect(proposed('___.raw')).toBe('');
  });
});
