/**
 * Drafts of forms. A draft has a string or a boolean for every field. encode and decode convert it
 * from and to the value in the request.
 */
import { isRequired, schemaAt, type Schema } from './schema';

export type FieldKind =
  | 'text'
  | 'password'
  | 'number'
  | 'boolean'
  | 'choice'
  | 'multiline'
  /** Strings, one per line. */
  | 'lines'
  /** Several of the options. */
  | 'several'
  /** Numbers, separated by commas. */
  | 'numbers'
  /** A map of strings, one `key=value` per line. */
  | 'pairs'
  /** Any JSON. */
  | 'json'
  | 'datetime';

export interface FieldSpec {
  /** Path of the property in the request, as in `targets.labels`. */
  name: string;
  label: string;
  /** Derived from the schema by default. */
  kind?: FieldKind;
  /** The schema's description by default. */
  hint?: string;
  placeholder?: string;
  options?: readonly { value: string; label: string }[];
  /** Suggestions while typing. Other values are allowed too. */
  suggestions?: readonly string[];
  /** Shown under "More settings". */
  advanced?: boolean;
  /** Whether the field is asked for, given what the others have. By default, it is. */
  when?: (draft: Draft) => boolean;
  /** Takes the whole width of a form with two columns. */
  wide?: boolean;
  /** Sends an empty value instead of omitting the field, so that a change can clear it. */
  keepEmpty?: boolean;
  /** Converts the value of the field's kind to the value in the request. May throw a DraftError. */
  read?: (value: unknown) => unknown;
  /** The inverse of `read`. */
  show?: (value: unknown) => unknown;
}

export type Draft = Record<string, string | boolean>;

export function kindOf(spec: FieldSpec, schema: Schema): FieldKind {
  if (spec.kind) return spec.kind;
  const property = schemaAt(schema, spec.name);
  if (spec.options || property?.enum) return 'choice';
  switch (property?.type) {
    case 'boolean':
      return 'boolean';
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return 'lines';
    case 'object':
      return 'pairs';
  }
  return property?.format === 'date-time' ? 'datetime' : 'text';
}

/** The fields that are asked for. */
export const asked = (specs: readonly FieldSpec[], draft: Draft) => specs.filter((s) => s.when?.(draft) ?? true);

/** A choice of numbers is sent as a number. */
function readAs(spec: FieldSpec, schema: Schema): FieldKind {
  const kind = kindOf(spec, schema);
  const type = schemaAt(schema, spec.name)?.type;
  return kind === 'choice' && (type === 'integer' || type === 'number') ? 'number' : kind;
}

function encode(kind: FieldKind, value: unknown): string | boolean {
  if (kind === 'boolean') return value === true;
  if (value === undefined || value === null) return '';
  switch (kind) {
    case 'lines':
    case 'several':
      return (value as string[]).join('\n');
    case 'numbers':
      return (value as number[]).join(', ');
    case 'pairs':
      return Object.entries(value as Record<string, string>)
        .map(([k, v]) => `${k}=${v}`)
        .join('\n');
    case 'json':
      return JSON.stringify(value, null, 2);
    case 'datetime':
      return localDateTime(new Date(value as string));
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** The format of inputs of type datetime-local. */
export function localDateTime(date: Date): string {
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}

/** Thrown by decode, with a message for people. */
export class DraftError extends Error {}

function decode(kind: FieldKind, draft: string | boolean, keepEmpty: boolean): unknown {
  if (typeof draft === 'boolean') return draft;
  const text = kind === 'password' || kind === 'multiline' ? draft : draft.trim();
  if (text === '') {
    if (!keepEmpty) return undefined;
    if (kind === 'pairs') return {};
    if (kind === 'lines' || kind === 'several' || kind === 'numbers') return [];
    return kind === 'number' || kind === 'json' || kind === 'datetime' ? undefined : '';
  }
  const lines = text.split('\n').map((l) => l.trim()).filter(Boolean);
  switch (kind) {
    case 'number': {
      const n = Number(text);
      if (!Number.isFinite(n)) throw new DraftError('Must be a number.');
      return n;
    }
    case 'lines':
    case 'several':
      return lines;
    case 'numbers':
      return text.split(/[\s,]+/).map((part) => {
        const n = Number(part);
        if (!Number.isFinite(n)) throw new DraftError(`“${part}” is not a number. Write numbers with commas between, as in 5, 25, 100.`);
        return n;
      });
    case 'pairs': {
      const pairs = new Map<string, string>();
      for (const line of lines) {
        const at = line.indexOf('=');
        if (at < 1) throw new DraftError(`“${line}” has no name. Write one name=value a line.`);
        const key = line.slice(0, at).trim();
        if (pairs.has(key)) throw new DraftError(`“${key}” stands there twice.`);
        pairs.set(key, line.slice(at + 1).trim());
      }
      return Object.fromEntries(pairs);
    }
    case 'json':
      try {
        return JSON.parse(text) as unknown;
      } catch (e) {
        throw new DraftError(`This is not JSON: ${(e as Error).message}.`);
      }
    case 'datetime': {
      const date = new Date(text);
      if (Number.isNaN(date.getTime())) throw new DraftError('Must be a date and a time.');
      return date.toISOString();
    }
  }
  return text;
}

/** The initial draft: the existing values, or the schema's defaults. */
export function draftOf(schema: Schema, specs: readonly FieldSpec[], values: object = {}): Draft {
  const draft: Draft = {};
  for (const spec of specs) {
    let value: unknown = values;
    for (const key of spec.name.split('.')) value = (value as Record<string, unknown> | undefined | null)?.[key];
    value ??= schemaAt(schema, spec.name)?.default;
    draft[spec.name] = encode(kindOf(spec, schema), value !== undefined && value !== null && spec.show ? spec.show(value) : value);
  }
  return draft;
}

/** The request for a draft, and the errors of fields that cannot be parsed. */
export function inputOf(schema: Schema, specs: readonly FieldSpec[], draft: Draft): { input: Record<string, unknown>; errors: Record<string, string> } {
  const input: Record<string, unknown> = {};
  const errors: Record<string, string> = {};
  for (const spec of asked(specs, draft)) {
    const keys = spec.name.split('.');
    const last = keys.pop() ?? '';
    try {
      const value = decode(readAs(spec, schema), draft[spec.name] ?? '', spec.keepEmpty ?? false);
      if (value === undefined) continue;
      let at = input;
      for (const key of keys) at = (at[key] ??= {}) as Record<string, unknown>;
      at[last] = spec.read ? spec.read(value) : value;
    } catch (e) {
      if (!(e instanceof DraftError)) throw e;
      errors[spec.name] = e.message;
    }
  }
  // A required object with only optional parts is sent even if all of them are empty.
  for (const [key, property] of Object.entries(schema.properties ?? {})) {
    if ((property as Schema).type === 'object' && isRequired(schema, key) && specs.some((s) => s.name.startsWith(`${key}.`))) input[key] ??= {};
  }
  return { input, errors };
}

/** The field for an error's path: the field itself, or one that contains it or is inside it. */
export function fieldFor(specs: readonly FieldSpec[], path: string): string | undefined {
  const normal = path.replaceAll(/\[(\d+)\]/g, '.$1');
  const inside = specs.filter((s) => normal === s.name || normal.startsWith(`${s.name}.`)).sort((a, b) => b.name.length - a.name.length)[0];
  return (inside ?? specs.find((s) => normal !== '' && s.name.startsWith(`${normal}.`)))?.name;
}
