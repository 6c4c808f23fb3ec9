import { describe, expect, it } from 'vitest';
import { axisTime, finerFrom, historyOf, timeline, withHistory, type History, type Moment } from './history';

/** Minutes of the value 1, answered at `now` (Unix seconds). */
const history = (now: number, ...minutes: number[]): History<number> => ({ now, step: 60, points: minutes.map((n) => ({ at: 60 * n, values: 1 })) });
const measured = (...at: number[]): Moment<number>[] => at.map((t) => ({ at: t, values: 2 }));
const text = (moments: Moment<number>[]) => moments.map((m) => `${m.at} ${m.values ?? '?'}`);

describe('historyOf', () => {
  it('has times in seconds, and values that know how long a step is', () => {
    const points = [{ at: '1970-01-01T00:05:00Z', n: 600 }];
    expect(historyOf('1970-01-01T00:10:01Z', 300, points, (p, seconds) => p.n / seconds)).toEqual({ now: 601, step: 300, points: [{ at: 300, values: 2 }] });
  });
});

describe('withHistory', () => {
  it('goes on with what was measured, which wins where both know', () => {
    expect(text(withHistory(history(240, 1, 2, 3), measured(202, 204)))).toEqual(['60 1', '120 1', '202 2', '204 2']);
    expect(text(withHistory(history(240, 1, 2, 3)))).toEqual(['60 1', '120 1', '180 1']);
    expect(text(withHistory(history(200), measured(202)))).toEqual(['202 2']);
  });

  it('leaves out the step that is not over, which would look like a fall', () => {
    expect(text(withHistory(history(239, 1, 2, 3)))).toEqual(['60 1', '120 1']);
  });

  it('breaks the line where nothing is known', () => {
    expect(text(withHistory(history(400, 1, 2, 5)))).toEqual(['60 1', '120 1', '180 ?', '300 1']);
    expect(text(withHistory(history(900, 1, 2), measured(902)))).toEqual(['60 1', '120 1', '180 ?', '902 2']);
  });

  it('does not take what was last known for the present', () => {
    expect(text(withHistory(history(300, 1, 2)))).toEqual(['60 1', '120 1']);
    expect(text(withHistory(history(301, 1, 2)))).toEqual(['60 1', '120 1', '180 ?']);
    expect(text(withHistory(history(301, 1, 2), measured(300)))).toEqual(['60 1', '120 1', '300 2']);
  });

  it("is in this browser's time if that is measured, whatever the service's clock says", () => {
    expect(text(withHistory(history(200, 1, 2), measured(1202), 1000))).toEqual(['1060 1', '1120 1', '1202 2']);
    expect(text(withHistory(history(240, 1, 2, 3), measured(1202), 1000))).toEqual(['1060 1', '1120 1', '1202 2']);
  });
});

describe('finerFrom', () => {
  it('asks for finer steps of a short past, and only then', () => {
    const week = (first: number): History<number> => ({ now: 1_000_000, step: 3600, points: [{ at: first, values: 1 }] });
    expect(finerFrom(week(900_000), '7d')).toBe(900_000);
    expect(finerFrom(week(500_000), '7d')).toBeUndefined();
    expect(finerFrom({ ...week(0), points: [] }, '7d')).toBeUndefined();
    expect(finerFrom({ ...week(999_000), step: 60 }, '7d')).toBeUndefined();
  });
});

describe('timeline', () => {
  it('is the range, without the time before anything was known, but not too narrow', () => {
    const at = (...times: number[]) => times.map((t) => ({ at: t, values: 1 }));
    expect(timeline(at(0, 9_900), 10_000, '1h')).toEqual([6_400, 10_000]);
    expect(timeline(at(8_000, 9_900), 10_000, '1h')).toEqual([8_000, 10_000]);
    expect(timeline(at(9_900), 10_000, '1h')).toEqual([9_700, 10_000]);
    expect(timeline([{ at: 7_000, values: undefined }, ...at(8_000)], 10_000, '6h')).toEqual([8_000, 10_000]);
    expect(timeline([], 1_000_000, '7d')).toEqual([999_700, 1_000_000]);
  });
});

describe('axisTime', () => {
  const local = (...parts: [number, number, number, number, number, number]) => new Date(...parts).getTime() / 1000;
  it('has the date at midnight, and seconds where they matter', () => {
    expect(axisTime(local(2026, 0, 5, 13, 5, 0))).toBe('13:05');
    expect(axisTime(local(2026, 0, 5, 13, 5, 30))).toBe('13:05:30');
    expect(axisTime(local(2026, 0, 5, 0, 0, 0))).toBe('5 Jan');
  });
});
