import { describe, expect, it } from 'vitest';
import { filterRows, nextOrder, sortRows } from './table-view';

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
