import { describe, expect, it } from 'vitest';
import { leftOutText } from './left-out';

describe('what a backup left out', () => {
  it('is said in a sentence, and not at all when nothing is', () => {
    const of = (...left_out: string[]) => leftOutText({ left_out, vm_name: 'web' });
    expect(of()).toBe('');
    expect(of('data')).toBe('The backup has the system disk of web only, and not the disk data.');
    expect(of('data', 'logs', 'mail')).toBe('The backup has the system disk of web only, and not the disks data, logs, or mail.');
  });
});
