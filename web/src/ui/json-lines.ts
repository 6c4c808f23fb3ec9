/** The difference of two JSON values by lines, ignoring the order of keys. */
import { diffLines } from 'diff';

export interface DiffLine {
  kind: 'same' | 'added' | 'removed';
  text: string;
}

/** A line on the left and its counterpart on the right, or null if there is none. */
export interface DiffRow {
  left: DiffLine | null;
  right: DiffLine | null;
}

/** JSON with sorted keys, so that equal values have equal text. */
function canonical(value: unknown): string {
  const ordered = (_: string, v: unknown): unknown =>
    typeof v === 'object' && v !== null && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))) : v;
  return JSON.stringify(value, ordered, 2);
}

export function jsonLines(before: unknown, after: unknown): DiffLine[] {
  return diffLines(`${canonical(before)}\n`, `${canonical(after)}\n`).flatMap((part) => {
    const kind = part.added ? 'added' : part.removed ? 'removed' : 'same';
    return part.value.replace(/\n$/, '').split('\n').map((text) => ({ kind, text }) as const);
  });
}

/** Places removed lines next to the lines that replaced them. */
export function sideBySide(lines: readonly DiffLine[]): DiffRow[] {
  const rows: DiffRow[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  const flush = () => {
    for (let i = 0; i < Math.max(removed.length, added.length); i++) rows.push({ left: removed[i] ?? null, right: added[i] ?? null });
    removed = [];
    added = [];
  };
  for (const line of lines) {
    if (line.kind === 'removed') removed.push(line);
    else if (line.kind === 'added') added.push(line);
    else {
      flush();
      rows.push({ left: line, right: line });
    }
  }
  flush();
  return rows;
}
