/** Which field of a form a refusal is about. The service says it in words only. */
import { ApiError } from '../ui/problem';

const about: readonly [RegExp, string][] = [
  [/^quota disk /, 'size'],
  [/^the VM has a disk /, 'name'],
];

/** The field of a form about a disk. */
export function diskField(error: unknown): string | undefined {
  return error instanceof ApiError ? about.find(([words]) => words.test(error.message))?.[1] : undefined;
}
