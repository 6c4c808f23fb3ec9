import { expect, it } from 'vitest';
import { exactSpan, parseSpan } from './spans';

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
