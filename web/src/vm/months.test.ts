import { describe, expect, it } from 'vitest';
import { monthOf, money, months, span } from './months';

const now = new Date('2026-03-01T00:30:00Z');

describe('months', () => {
  it('are those of UTC, over the edges of years', () => {
    expect(months(now, 4)).toEqual(['2026-03', '2026-02', '2026-01', '2025-12']);
    expect(monthOf('2025-12')).toBe('December 2025');
  });
  it('end with the next one, and the present one ends now', () => {
    expect(span('2026-02', now)).toEqual({ from: '2026-02-01T00:00:00.000Z', to: '2026-03-01T00:00:00.000Z' });
    expect(span('2026-03', now)).toEqual({ from: '2026-03-01T00:00:00.000Z' });
  });
});

describe('money', () => {
  it('has the digits of its currency, and survives an unknown one', () => {
    expect(money(1234.5, 'EUR').replace(/\s/g, ' ')).toBe('EUR 1,234.50');
    expect(money(1234, 'JPY').replace(/\s/g, ' ')).toBe('JPY 1,234');
    expect(money(1, '')).toBe('1');
  });
});
