import { expect, test } from 'vitest';
import { inFolder, parents } from './path';

test('paths of entries begin at the root', () => {
  expect(inFolder('/', 'etc')).toBe('/etc');
  expect(inFolder('/etc', 'passwd')).toBe('/etc/passwd');
  expect(inFolder('/etc/', 'a b')).toBe('/etc/a b');
});

test('each folder above a path has its own path', () => {
  expect(parents('/')).toEqual([{ name: '/', path: '/' }]);
  expect(parents('/var/log')).toEqual([
    { name: '/', path: '/' },
    { name: 'var/', path: '/var' },
    { name: 'log/', path: '/var/log' },
  ]);
});
