/** The part of a form that differs from what there is, so that a change does not take back those of others. */
export function changedOf<T extends object>(before: object, input: T): Partial<T> {
  const was = before as Record<string, unknown>;
  return Object.fromEntries(Object.entries(input).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(was[name]))) as Partial<T>;
}
