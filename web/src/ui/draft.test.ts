import { describe, expect, it } from 'vitest';
import { draftOf, fieldFor, inputOf, type FieldSpec } from './draft';
import type { Schema } from './schema';

const schema: Schema = {
  type: 'object',
  required: ['name', 'targets'],
  properties: {
    name: { type: 'string' },
    count: { type: 'integer', default: 3 },
    enabled: { type: 'boolean', default: true },
    ttl: { type: 'integer' },
    env: { type: 'object' },
    images: { type: 'array', items: { type: 'string' } },
    stages: { type: 'array', items: { type: 'integer' } },
    payload: {},
    from: { type: 'string', format: 'date-time' },
    targets: { type: 'object', properties: { labels: { type: 'object' }, ids: { type: 'array' } } },
  },
};
const fields: FieldSpec[] = [
  { name: 'name', label: 'Name' },
  { name: 'count', label: 'Count' },
  { name: 'enabled', label: 'Enabled' },
  { name: 'ttl', label: 'TTL', options: [{ value: '60', label: 'a minute' }] },
  { name: 'env', label: 'Environment' },
  { name: 'images', label: 'Images' },
  { name: 'stages', label: 'Stages', kind: 'numbers' },
  { name: 'payload', label: 'Payload', kind: 'json' },
  { name: 'from', label: 'From' },
  { name: 'targets.labels', label: 'Labels' },
  { name: 'targets.ids', label: 'Ids' },
];

describe('draftOf and inputOf', () => {
  it('begin with the defaults and leave out what was not filled in, but not what is required', () => {
    const draft = draftOf(schema, fields);
    expect(draft).toMatchObject({ name: '', count: '3', enabled: true, env: '' });
    expect(inputOf(schema, fields, { ...draft, name: ' a ' })).toEqual({ input: { name: 'a', count: 3, enabled: true, targets: {} }, errors: {} });
  });

  it('give back every kind of value as it was', () => {
    const value = {
      name: 'n',
      count: 7,
      enabled: false,
      ttl: 60,
      env: { A: '1', B: 'x=y' },
      images: ['a/*', 'b'],
      stages: [5, 100],
      payload: { deep: [1, null] },
      from: '2026-01-02T03:04:05.000Z',
      targets: { labels: { zone: 'north' }, ids: ['d1'] },
    };
    expect(inputOf(schema, fields, draftOf(schema, fields, value))).toEqual({ input: value, errors: {} });
  });

  it('send what was emptied where the field asks for it', () => {
    const kept = fields.map((f) => ({ ...f, keepEmpty: true }));
    const draft = { ...draftOf(schema, kept, { env: { A: '1' }, images: ['a'] }), env: '', images: ' \n ' };
    expect(inputOf(schema, kept, draft).input).toMatchObject({ name: '', env: {}, images: [] });
  });

  it('say at its field what cannot be read', () => {
    const draft = { ...draftOf(schema, fields), count: 'three', env: 'A=1\nnonsense', stages: '5, x', payload: '{', from: 'yesterday', 'targets.labels': 'a=1\na=2' };
    const { errors } = inputOf(schema, fields, draft);
    expect(errors).toMatchObject({
      count: 'Must be a number.',
      env: '“nonsense” has no name. Write one name=value a line.',
      stages: expect.stringContaining('“x” is not a number') as string,
      payload: expect.stringContaining('This is not JSON') as string,
      from: 'Must be a date and a time.',
      'targets.labels': '“a” stands there twice.',
    });
  });
});

describe('fieldFor', () => {
  it.each([
    ['name', 'name'],
    ['targets.labels.zone', 'targets.labels'],
    ['images.3', 'images'],
    ['images[3]', 'images'],
    ['targets', 'targets.labels'],
    ['elsewhere', undefined],
    ['', undefined],
  ])('finds the field of %j', (path, field) => {
    expect(fieldFor(fields, path)).toBe(field);
  });
});
