/** Splits an audit entry's detail into the state before and after the change, and the rest. */
import type { AuditEntry } from './api';

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

export function changeOf(detail: AuditEntry['detail']): { change?: { before: object; after: object }; rest: Record<string, unknown> } {
  const { before, after, ...rest } = detail as Record<string, unknown>;
  return isObject(before) && isObject(after) ? { change: { before, after }, rest } : { rest: detail };
}
