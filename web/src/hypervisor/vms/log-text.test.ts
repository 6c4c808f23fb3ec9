import { describe, expect, it } from 'vitest';
import { logEnd, plain } from './log-text';

const bytesOf = (text: string) => new TextEncoder().encode(text);

describe('what a VM printed', () => {
  it('is read without colours, titles and movements of the cursor', () => {
    expect(plain('\x1b[2J\x1b[01;31mred\x1b[0m \x1b]0;title\x07plain\x1b(B\x1b7\x1b[?25l')).toBe('red plain');
  });
  it('has lines that end in one way, and loses nothing that was written over', () => {
    expect(plain('one\r\ntwo\r\r\n10 %\r20 %\n')).toBe('one\ntwo\n10 %\n20 %\n');
  });
  it('has no other control characters', () => {
    expect(plain('a\x00b\x08c\td\x7f')).toBe('abc\td');
  });
  it('may have any bytes', () => {
    expect(logEnd(new Uint8Array([0xff, 0x41]), 10)).toEqual({ text: '\ufffdA', cut: false });
  });
});

describe('the end of a log', () => {
  it('is whole if less was printed than was asked for', () => {
    expect(logEnd(bytesOf('boot\nready\n'), 100)).toEqual({ text: 'boot\nready\n', cut: false });
  });
  it('begins with a whole line otherwise', () => {
    expect(logEnd(bytesOf('oot\nready\n'), 10)).toEqual({ text: 'ready\n', cut: true });
    expect(logEnd(bytesOf('one line only'), 13)).toEqual({ text: 'one line only', cut: true });
  });
});
