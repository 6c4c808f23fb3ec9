/** What a VM printed, as text that can be read without a terminal. */

const escape = String.fromCharCode(27);
const bell = String.fromCharCode(7);

/** Sequences that move the cursor, set colours or name the window. */
const sequences = new RegExp([`${escape}\\[[0-?]*[ -/]*[@-~]`, `${escape}\\][^${bell}${escape}]*(?:${bell}|${escape}\\\\)`, `${escape}[ -/]*[0-~]`].join('|'), 'g');

/** Removes what only terminals understand. A line that was written over is kept as one of its own. */
export const plain = (printed: string): string =>
  printed
    .replaceAll(sequences, '')
    .replaceAll(/\r+\n/g, '\n')
    .replaceAll(/\r+/g, '\n')
    .replaceAll(/[^\P{Cc}\n\t]/gu, '');

export interface LogEnd {
  text: string;
  /** Earlier output is left out. */
  cut: boolean;
}

/** The end of a log of which at most `most` bytes were asked for. If more was printed, it begins with a whole line. */
export function logEnd(raw: Uint8Array, most: number): LogEnd {
  const cut = raw.length >= most;
  const line = cut ? raw.indexOf(10) + 1 : 0;
  return { text: plain(new TextDecoder().decode(raw.subarray(line))), cut };
}
