import { describe, expect, it } from 'vitest';
import { portsOf, portsText } from './ports';

describe('portsOf', () => {
  it('reads ports and ranges, and portsText writes them', () => {
    expect(portsOf(' 22, 80 8000-8100,443-443')).toEqual([{ port: 22 }, { port: 80 }, { port: 8000, end_port: 8100 }, { port: 443 }]);
    expect(portsText(portsOf('22, 8000-8100'))).toBe('22, 8000-8100');
    expect(portsOf(' ')).toEqual([]);
  });

  it.each(['0', '65536', '90-80', 'ssh', '-1', '1-', '1.5'])('refuses %s by its name', (text) => {
    expect(() => portsOf(`22, ${text}`)).toThrow(`“${text}” is not a port`);
  });
});
