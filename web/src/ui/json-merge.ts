/** Merges two changes of the same JSON document. */

type Json = unknown;

const isObject = (v: Json): v is Record<string, Json> => typeof v === 'object' && v !== null && !Array.isArray(v);

/** Whether two JSON values are equal, ignoring the order of keys. */
export function equalJson(a: Json, b: Json): boolean {
  if (Object.is(a, b)) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((v, i) => equalJson(v, b[i]));
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => k in b && equalJson(a[k], b[k]));
}

export interface Merge {
  merged: Json;
  /** Dotted paths that were changed differently on both sides. `merged` has my value there. */
  conflicts: string[];
}

/**
 * Merges the changes between base and mine into theirs. Objects are merged by key. All other
 * values, including arrays, are merged as a whole.
 */
export function mergeJson(base: Json, mine: Json, theirs: Json, path = ''): Merge {
  if (equalJson(mine, theirs) || equalJson(mine, base)) return { merged: theirs, conflicts: [] };
  if (equalJson(theirs, base)) return { merged: mine, conflicts: [] };
  if (!isObject(mine) || !isObject(theirs)) return { merged: mine, conflicts: [path || 'the whole document'] };
  const from = isObject(base) ? base : {};
  const merged: Record<string, Json> = {};
  const conflicts: string[] = [];
  for (const key of new Set([...Object.keys(theirs), ...Object.keys(mine)])) {
    const result = mergeJson(from[key], mine[key], theirs[key], path ? `${path}.${key}` : key);
    conflicts.push(...result.conflicts);
    // undefined means that the key is absent, since no JSON value is undefined.
    if (result.merged !== undefined) merged[key] = result.merged;
  }
  return { merged, conflicts };
}
