import { describe, expect, it } from 'vitest';
import { atOnce, earlier, filterRows, later, nextOrder, shownPart, sortRows } from './table-view';

interface Row {
  name: string;
  size: number | null;
}

const rows: Row[] = [
  { name: 'site-10', size: 5 },
  { name: 'Site-9', size: null },
  { name: 'depot', size: 30 },
  { name: 'annex', size: 5 },
];
const columns = [
  { id: 'name', sort: (r: Row) => r.name },
  { id: 'size', sort: (r: Row) => r.size, text: () => '' },
];
const names = (r: Row[]) => r.map((x) => x.name);

describe('sortRows', () => {
  it('orders names as people do, by number and whatever the case', () => {
    expect(names(sortRows(rows, columns, { column: 'name', descending: false }))).toEqual(['annex', 'depot', 'Site-9', 'site-10']);
  });
  it('puts rows without a value last either way, and keeps equals as they were', () => {
    expect(names(sortRows(rows, columns, { column: 'size', descending: false }))).toEqual(['site-10', 'annex', 'depot', 'Site-9']);
    expect(names(sortRows(rows, columns, { column: 'size', descending: true }))).toEqual(['depot', 'site-10', 'annex', 'Site-9']);
  });
  it('leaves rows as they came without an order, or by a column that cannot be sorted', () => {
    expect(sortRows(rows, columns, null)).toEqual(rows);
    expect(sortRows(rows, columns, { column: 'gone', descending: true })).toEqual(rows);
  });
});

describe('filterRows', () => {
  it('finds rows in which every word occurs, whatever the case', () => {
    expect(names(filterRows(rows, columns, 'SITE 1'))).toEqual(['site-10']);
    expect(filterRows(rows, columns, '  ')).toEqual(rows);
  });
  it('looks at a column’s text rather than its sort value', () => {
    expect(filterRows(rows, columns, '30')).toEqual([]);
  });
});

describe('nextOrder', () => {
  it('goes up, down, and back to how it came', () => {
    const up = nextOrder(null, 'a');
    const down = nextOrder(up, 'a');
    expect([up, down, nextOrder(down, 'a'), nextOrder(down, 'b')]).toEqual([{ column: 'a', descending: false }, { column: 'a', descending: true }, null, { column: 'b', descending: false }]);
  });
});

describe('the shown part of a list', () => {
  it('never has more rows than a browser bears, and every row is in one of the parts', () => {
    for (const total of [0, 1, 199, 200, 201, 600, 601, 5_000]) {
      const seen = new Set<number>();
      const see = (end: number) => {
        const part = shownPart(total, end);
        expect(part.end - part.first).toBeLessThanOrEqual(600);
        expect(part.end).toBeLessThanOrEqual(total);
        for (let i = part.first; i < part.end; i++) seen.add(i);
        return part;
      };
      let end = atOnce;
      while (see(end).end < total) end = later(total, end);
      expect(seen.size).toBe(total);
      seen.clear();
      for (end = Infinity; see(end).first > 0; ) end = earlier(total, end);
      expect(seen.size).toBe(total);
    }
  });
});
