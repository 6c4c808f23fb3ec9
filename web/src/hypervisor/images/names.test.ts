import { describe, expect, it } from 'vitest';
import { cdNames, looksLikeCD } from './names';

describe('the images that are proposed for a CD drive', () => {
  it('are disks, first of those that look like CDs', () => {
    const image = (name: string, source = '', kind: 'disk' | 'kernel' = 'disk') => ({ name, source, kind });
    expect(cdNames([image('debian'), image('demo', '', 'kernel'), image('tools', '/srv/Tools.ISO'), image('debian-12-iso')])).toEqual(['tools', 'debian-12-iso', 'debian']);
  });
  it.each([
    ['debian-iso', true],
    ['cd', true],
    ['win.dvd.1', true],
    ['isolated', false],
    ['abcd', false],
  ])('%s: %s', (name, looks) => expect(looksLikeCD({ name, source: 'uploaded by admin' })).toBe(looks));
});
