import { describe, expect, it } from 'vitest';
import { isRequired, schemaAt, validate, type Schema } from './schema';

const schema: Schema = {
  type: 'object',
  required: ['name', 'targets'],
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 5 },
    count: { type: 'integer', minimum: 1, maximum: 10 },
    sha256: { type: 'string', pattern: '^[0-9a-fA-F]{64}$' },
    mode: { type: 'string', enum: ['on', 'off'] },
    at: { type: 'string', format: 'date-time' },
    targets: { type: 'object', required: ['site'], properties: { site: { type: 'string' }, labels: { type: 'object', maxProperties: 1, additionalProperties: { type: 'string', maxLength: 3 } } } },
    vm: { type: 'string', pattern: '^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$' },
    stages: { type: 'array', minItems: 1, items: { type: 'integer', maximum: 100 } },
  },
};
const good = { name: 'a', targets: { site: 's' } };

describe('validate', () => {
  it('finds nothing wrong with what is right', () => {
    expect(validate(schema, { ...good, count: 10, mode: 'on', at: '2026-01-02T03:04:05Z', stages: [5, 100], sha256: 'a'.repeat(64), extra: true })).toEqual([]);
  });
  it.each<[string, object, string, string]>([
    ['a required part that is absent', { targets: { site: 's' } }, 'name', 'Fill this in.'],
    ['one inside another', { name: 'a', targets: {} }, 'targets.site', 'Fill this in.'],
    ['an empty text', { ...good, name: '' }, 'name', 'Must not be empty.'],
    ['a long text', { ...good, name: 'abcdef' }, 'name', 'Must have at most 5 characters.'],
    ['a small number', { ...good, count: 0 }, 'count', 'Must be at least 1.'],
    ['a fraction', { ...good, count: 1.5 }, 'count', 'Must be a whole number.'],
    ['what is not a choice', { ...good, mode: 'dim' }, 'mode', 'Must be one of: on, off.'],
    ['a bad hash', { ...good, sha256: 'abc' }, 'sha256', 'Must be 64 hexadecimal digits.'],
    ['a name with what none has', { ...good, vm: 'a b' }, 'vm', 'May have letters and digits, and between them any of _ -.'],
    ['what is not a time', { ...good, at: 'noon' }, 'at', 'Must be a date and a time.'],
    ['an item of a list', { ...good, stages: [5, 101] }, 'stages.1', 'Must be at most 100.'],
    ['an empty list', { ...good, stages: [] }, 'stages', 'Needs at least one entry.'],
    ['a value in a map', { ...good, targets: { site: 's', labels: { a: 'long' } } }, 'targets.labels.a', 'Must have at most 3 characters.'],
    ['too many in a map', { ...good, targets: { site: 's', labels: { a: '1', b: '2' } } }, 'targets.labels', 'May have at most 1 entries.'],
  ])('names %s', (_, value, path, message) => {
    expect(validate(schema, value)).toEqual([{ path, message }]);
  });
});

describe('the shape of a schema', () => {
  it('is found by dotted path', () => {
    expect(schemaAt(schema, 'targets.site')).toEqual({ type: 'string' });
    expect(schemaAt(schema, 'targets.none.such')).toBeUndefined();
    expect([isRequired(schema, 'targets.site'), isRequired(schema, 'targets.labels'), isRequired(schema, 'name'), isRequired(schema, 'count')]).toEqual([true, false, true, false]);
  });
});
