import { describe, expect, it } from 'vitest';
import { cdNames, diskNames } from './ready';

const images = [
  { image: 'acme:web', kind: 'disk', shared: false, tenant: 'acme' },
  { image: 'other:web', kind: 'disk', shared: false, tenant: 'other' },
  { image: 'base', kind: 'disk', shared: true },
  { image: 'installer', kind: 'iso', shared: true },
] as const;

describe('the images that are proposed', () => {
  it('are those of the tenant of the VM, and shared ones', () => {
    expect(diskNames(images, { tenant: 'acme' })).toEqual(['acme:web', 'base']);
    expect(diskNames(images, {})).toEqual(['base']);
    expect(diskNames(undefined, {})).toEqual([]);
  });
  it('are installation media first for a CD drive', () => {
    expect(cdNames(images, { tenant: 'acme' })).toEqual(['installer', 'acme:web', 'base']);
  });
});
