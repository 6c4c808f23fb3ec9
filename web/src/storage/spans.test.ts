import { expect, it } from 'vitest';
import { exactSpan, parseSpan, spanField } from './spans';

it.each([
  ['30 days', 2_592_000],
  ['12h', 43_200],
  ['1 Week', 604_800],
  ['90 min', 5_400],
  ['30', undefined],
  ['0 days', undefined],
  ['1.5 hours', undefined],
  ['5 months', undefined],
  ['', undefined],
])('“%s” is %s seconds', (text, seconds) => expect(parseSpan(text)).toBe(seconds));

it.each([
  [300, '5 minutes'],
  [3_600, '1 hour'],
  [604_800, '7 days'],
  [1_209_600, '2 weeks'],
  [301, '301 seconds'],
])('%s seconds are %s', (seconds, text) => expect(exactSpan(seconds)).toBe(text));

it('a span that is too short is refused in words', () => {
  const field = spanField('every', 'Every', {}, 300);
  expect(field.read?.('5 min')).toBe(300);
  expect(() => field.read?.('1 min')).toThrow('Must be at least 5 minutes.');
  expect(() => field.read?.('often')).toThrow('Write a number with its unit');
});
