/**
 * Validation of input against the contract's JSON schemas. Each error has a message for people and
 * the field that it belongs to. The validator interprets schemas, since the consoles' content
 * security policy forbids generated code.
 */
import { Validator, type Schema } from '@cfworker/json-schema';

export type { Schema };

export interface FieldError {
  /** Path of the field, as in `targets.labels`. Empty for the whole input. */
  path: string;
  message: string;
}

/** The schema of a property, by dotted path. */
export function schemaAt(schema: Schema, path: string): Schema | undefined {
  let at: Schema | undefined = schema;
  for (const key of path.split('.')) at = at?.properties?.[key] as Schema | undefined;
  return at;
}

/** Whether the property is required. */
export function isRequired(schema: Schema, path: string): boolean {
  const keys = path.split('.');
  const last = keys.pop() ?? '';
  const parent = keys.length ? schemaAt(schema, keys.join('.')) : schema;
  return ((parent?.required ?? [])).includes(last);
}

/** The errors of a value, at most one per field. */
export function validate(schema: Schema, value: unknown): FieldError[] {
  const { errors } = new Validator(schema, '2019-09', false).validate(value);
  const byPath = new Map<string, string>();
  for (const error of errors) {
    // These only report that a nested value is invalid, which has its own error.
    if (['properties', 'items', 'additionalProperties', 'allOf', 'anyOf'].includes(error.keyword)) continue;
    let path = unescape(error.instanceLocation);
    let message: string;
    if (error.keyword === 'required') {
      const name = /"([^"]+)"/.exec(error.error)?.[1] ?? '';
      path = path ? `${path}.${name}` : name;
      message = 'Fill this in.';
    } else {
      message = sentence(error.keyword, pointer(schema, error.keywordLocation)) ?? error.error;
    }
    if (!byPath.has(path)) byPath.set(path, message);
  }
  return [...byPath].map(([path, message]) => ({ path, message }));
}

function unescape(location: string): string {
  return location
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .join('.');
}

function pointer(schema: Schema, location: string): unknown {
  let at: unknown = schema;
  for (const part of location.split('/').slice(1)) at = (at as Record<string, unknown> | undefined)?.[part.replaceAll('~1', '/').replaceAll('~0', '~')];
  return at;
}

function sentence(keyword: string, limit: unknown): string | undefined {
  const n = Number(limit);
  switch (keyword) {
    case 'minLength':
      return n === 1 ? 'Must not be empty.' : `Must have at least ${n} characters.`;
    case 'maxLength':
      return `Must have at most ${n} characters.`;
    case 'minimum':
      return `Must be at least ${n}.`;
    case 'maximum':
      return `Must be at most ${n}.`;
    case 'minItems':
      return n === 1 ? 'Needs at least one entry.' : `Needs at least ${n} entries.`;
    case 'maxItems':
    case 'maxProperties':
      return `May have at most ${n} entries.`;
    case 'enum':
      return `Must be one of: ${(limit as string[]).join(', ')}.`;
    case 'pattern':
      return pattern(String(limit));
    case 'format':
      return limit === 'date-time' ? 'Must be a date and a time.' : undefined;
    case 'type':
      return limit === 'integer' ? 'Must be a whole number.' : `Must be ${limit === 'array' || limit === 'object' ? 'an' : 'a'} ${String(limit)}.`;
  }
  return undefined;
}

/** Descriptions of the patterns that users encounter. */
function pattern(expression: string): string {
  const hex = /^\^\[0-9a-fA-F\]\{(\d+)\}\$$/.exec(expression);
  if (hex) return `Must be ${hex[1]} hexadecimal digits.`;
  const inner = /^\^\[A-Za-z0-9\]\(\[A-Za-z0-9([^\]]*)\]/.exec(expression);
  if (inner) return `May have letters and digits, and between them any of ${(inner[1] ?? '').split('').join(' ')}.`;
  if (expression.startsWith('^[a-z0-9]')) return 'May have lower-case letters, digits and inner hyphens only.';
  return `Must match ${expression}.`;
}
