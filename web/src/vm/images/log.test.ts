import { describe, expect, it } from 'vitest';
import { append, begun } from './log';

const part = (text: string, offset: number, complete = false) => ({ text, offset, next: offset + text.length, complete });

describe('append', () => {
  it('puts parts one after the other, and knows where the next begins', () => {
    const log = append(append(begun, part('one\n', 0)), part('two\n', 4, true));
    expect(log).toEqual({ text: 'one\ntwo\n', next: 8, cut: false, complete: true });
  });

  it('tells that something is missing, at the beginning and in between', () => {
    expect(append(begun, part('late\n', 100))).toMatchObject({ text: 'late\n', cut: true, next: 105 });
    expect(append(append(begun, part('one\n', 0)), part('three\n', 50))).toMatchObject({ text: 'one\n…\nthree\n', cut: true });
  });

  it('keeps the last whole lines of a long log', () => {
    const log = append(append(begun, part('first\nsecond\n', 0)), part('third\n', 13), 13);
    expect(log).toMatchObject({ text: 'second\nthird\n', cut: true, next: 19 });
    expect(append(begun, part('first\nsecond\n', 0), 10).text).toBe('second\n');
    expect(append(begun, part('first\nsecond\n', 0), 13)).toMatchObject({ text: 'first\nsecond\n', cut: false });
  });
});
