/** Which field of a form a refusal of the daemon is about, where the daemon does not name it. */
import { ApiError, atField as showAtField } from '../ui/problem';

/** The fields of limits of the policy. The daemon always names the limit, but not always the field. */
const limits: Partial<Record<string, string>> = { max_vcpus: 'vcpus', max_memory_mib: 'memory_mib', max_disk_gib: 'disk_gib', max_ttl_seconds: 'ttl_seconds', allowed_backends: 'backend', allowed_image_dirs: 'image' };

/** The fields of conflicts that name none. */
const codes: Partial<Record<string, string>> = { name_taken: 'name', serial_taken: 'serial', image_locked: 'image' };

export function refusedField(error: unknown): string | undefined {
  if (!(error instanceof ApiError)) return undefined;
  if (error.field !== undefined && error.field !== '') return error.field;
  const limit = error.limit?.split('.').at(-1) ?? '';
  return limits[limit.replace(/_total$/, '')] ?? codes[error.code];
}

/** Makes a form show the error at the field that it is about. */
export const atField = <T>(call: Promise<T>) => showAtField(call, refusedField);
