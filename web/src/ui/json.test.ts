import { describe, expect, it } from 'vitest';
import { checkJson } from './json-check';
import { jsonLines, sideBySide } from './json-lines';
import { equalJson, mergeJson } from './json-merge';

describe('jsonLines', () => {
  it('finds no difference in another order of keys', () => {
    expect(jsonLines({ a: 1, b: { c: 2, d: 3 } }, { b: { d: 3, c: 2 }, a: 1 }).every((l) => l.kind === 'same')).toBe(true);
  });
  it('marks what was removed and what was added', () => {
    const changed = jsonLines({ a: 1, b: 2 }, { a: 1, b: 3, c: [] }).filter((l) => l.kind !== 'same');
    expect(changed).toEqual([
      { kind: 'removed', text: '  "b": 2' },
      { kind: 'added', text: '  "b": 3,' },
      { kind: 'added', text: '  "c": []' },
    ]);
  });
  it('puts what was added beside what it replaces', () => {
    const rows = sideBySide(jsonLines({ a: 1 }, { a: 2, b: 3 }));
    expect(rows.map((r) => [r.left?.text ?? null, r.right?.text ?? null])).toEqual([
      ['{', '{'],
      ['  "a": 1', '  "a": 2,'],
      [null, '  "b": 3'],
      ['}', '}'],
    ]);
  });
});

describe('mergeJson', () => {
  const base = { mode: 'auto', limit: 1, zone: { a: 1, b: 2 }, list: [1] };
  it('takes both changes when they do not collide', () => {
    expect(mergeJson(base, { ...base, limit: 5, zone: { a: 9, b: 2 } }, { ...base, mode: 'off', zone: { a: 1, b: 7, c: 1 } })).toEqual({
      merged: { mode: 'off', limit: 5, zone: { a: 9, b: 7, c: 1 }, list: [1] },
      conflicts: [],
    });
  });
  it('takes mine where both changed the same, and names the place', () => {
    const result = mergeJson(base, { ...base, zone: { a: 3, b: 2 } }, { ...base, zone: { a: 4, b: 2 } });
    expect(result.conflicts).toEqual(['zone.a']);
    expect(result.merged).toMatchObject({ zone: { a: 3, b: 2 } });
  });
  it('keeps what one side removed removed', () => {
    const { limit: _, ...without } = base;
    expect(mergeJson(base, without, { ...base, mode: 'off' })).toEqual({ merged: { ...without, mode: 'off' }, conflicts: [] });
    expect(mergeJson(base, { ...base, mode: 'off' }, without)).toEqual({ merged: { ...without, mode: 'off' }, conflicts: [] });
  });
  it('holds a list to be one value', () => {
    expect(mergeJson(base, { ...base, list: [1, 2] }, { ...base, list: [1, 3] })).toMatchObject({ merged: { list: [1, 2] }, conflicts: ['list'] });
  });
  it('finds no conflict in the same change made twice', () => {
    expect(mergeJson(base, { ...base, limit: 2 }, { limit: 2, ...{ mode: 'auto', zone: { b: 2, a: 1 }, list: [1] } }).conflicts).toEqual([]);
  });
});

describe('equalJson', () => {
  it.each([
    [{ a: [1, { b: null }] }, { a: [1, { b: null }] }, true],
    [{ a: undefined }, {}, false],
    [[1, 2], [2, 1], false],
    [null, {}, false],
    [[], {}, false],
    [1, '1', false],
  ])('compares %j with %j', (a, b, same) => {
    expect(equalJson(a, b)).toBe(same);
  });
});

describe('checkJson', () => {
  it('reads what is right', () => {
    expect(checkJson('{"a": 1}', true)).toEqual({ ok: true, value: { a: 1 } });
  });
  it.each([
    ['{\n  "a": 1,\n  "b": nope\n}', 'Line 3: a value must stand here, not nope.'],
    ['{\n  "a": 1\n  "b": 2\n}', 'Line 3: a comma or the closing bracket must stand here, not "b".'],
    ['{\n  "a": [1, 2],\n}', 'Line 3: a name in double quotes must stand here, not }.'],
    ['{"a": {\n"b": []', 'Line 2: the closing } is missing; the text ends here.'],
    ['{\n a: 1}', 'Line 2: a name in double quotes or } must stand here, not a.'],
    ['{"a" 1}', 'Line 1: a colon must stand here, not 1.'],
    ['[\n1,\n', 'Line 3: a value must stand here; the text ends here.'],
    ['["a\nb"]', 'Line 1: this text in quotes does not end on its line, or has a \\ that means nothing.'],
    ['[01]', 'Line 1: a value or ] must stand here, not 01.'],
    ['{}\n\n{}', 'Line 3: the document ends before this.'],
    ['[1}', 'Line 1: a comma or the closing bracket must stand here, not }.'],
  ])('says where %j is wrong', (text, message) => {
    expect(checkJson(text)).toMatchObject({ ok: false, message });
  });
  it('admits only an object where one is wanted', () => {
    expect(checkJson('[1]', true)).toMatchObject({ ok: false });
    expect(checkJson('[1]')).toMatchObject({ ok: true });
    expect(checkJson('  ')).toMatchObject({ ok: false });
  });
});
