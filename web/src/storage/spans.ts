/** Spans of time in forms: people write them with a unit, requests have seconds. */
import { DraftError, type FieldSpec } from '../ui/draft';

/** From the largest to the smallest. */
const units: readonly [seconds: number, name: string, words: RegExp][] = [
  [604_800, 'weeks', /^w(eeks?)?$/],
  [86_400, 'days', /^d(ays?)?$/],
  [3_600, 'hours', /^h(ours?)?$/],
  [60, 'minutes', /^m(in(utes?)?)?$/],
];

/** The seconds of a span as people write it: `7 days`, `12h`, `1 week`. Undefined if it is none. */
export function parseSpan(text: string): number | undefined {
  const [, n, word] = /^(\d+)\s*([a-z]+)$/i.exec(text.trim()) ?? [];
  const unit = units.find(([, , words]) => words.test(word?.toLowerCase() ?? ''));
  const seconds = unit ? Number(n) * unit[0] : 0;
  return Number.isSafeInteger(seconds) && seconds > 0 ? seconds : undefined;
}

/** A span in the largest unit that divides it, as in “7 days”. parseSpan reads it back if it is whole minutes. */
export function exactSpan(seconds: number): string {
  const unit = units.find(([size]) => seconds % size === 0 && (size !== 604_800 || seconds > 604_800));
  if (!unit) return `${seconds} seconds`;
  const n = seconds / unit[0];
  return `${n} ${n === 1 ? unit[1].slice(0, -1) : unit[1]}`;
}

/** A field for a span in seconds, which is not shorter than the least. */
export const spanField = (name: string, label: string, more: Partial<FieldSpec> = {}, least = 0): FieldSpec => ({
  name,
  label,
  kind: 'text',
  placeholder: '30 days',
  read: (text) => {
    const span = parseSpan(String(text));
    if (span === undefined) throw new DraftError('Write a number with its unit, as in 12 hours or 30 days.');
    if (span < least) throw new DraftError(`Must be at least ${exactSpan(least)}.`);
    return span;
  },
  show: (seconds) => (Number(seconds) > 0 ? exactSpan(Number(seconds)) : ''),
  ...more,
});
