import { describe, expect, it } from 'vitest';
import { distributionOptions, originText } from './origin';

describe('originText', () => {
  it.each([
    [{ distribution: 'debian', version: '12', agent: true }, 'built of Debian 12'],
    [{ distribution: 'alma', version: '9', agent: false }, 'downloaded, AlmaLinux 9'],
    [{ distribution: 'fedora', version: '', agent: true }, 'built of Fedora'],
    [{ distribution: '', version: '', agent: false }, 'imported'],
  ])('of %o is “%s”', (image, text) => expect(originText(image)).toBe(text));
});

describe('distributionOptions', () => {
  it('has names, in their order, and takes those that it does not know', () => {
    expect(distributionOptions(['ubuntu', 'alma', 'new']).map((o) => o.label)).toEqual(['AlmaLinux', 'new', 'Ubuntu']);
  });
});
