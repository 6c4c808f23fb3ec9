/** Parses JSON written by people, and reports the position of errors. */

export type JsonCheck = { ok: true; value: unknown } | { ok: false; message: string; line?: number };

/** Parses text. `object` allows only a JSON object. Lines count from 1. */
export function checkJson(text: string, object = false): JsonCheck {
  if (text.trim() === '') return { ok: false, message: 'This is empty. Write a JSON document.' };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    const { at, message } = firstFault(text);
    const line = text.slice(0, at).split('\n').length;
    return { ok: false, line, message: `Line ${line}: ${message}` };
  }
  if (object && (typeof value !== 'object' || value === null || Array.isArray(value))) {
    return { ok: false, message: 'This must be a JSON object, as in {"key": "value"}.' };
  }
  return { ok: true, value };
}

const token = /\s*(?:([{}[\],:])|("(?:[^"\\\p{Cc}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+])|(?:true|false|null)(?!\w)))/uy;

const wants = {
  value: 'a value must stand here',
  first: 'a value or ] must stand here',
  key: 'a name in double quotes must stand here',
  firstKey: 'a name in double quotes or } must stand here',
  colon: 'a colon must stand here',
  next: 'a comma or the closing bracket must stand here',
  end: 'the document ends before this',
};

/**
 * Finds the first syntax error of a text. Engines report it too, but with different messages and
 * often without the position.
 */
function firstFault(text: string): { at: number; message: string } {
  const open: ('{' | '[')[] = [];
  let want: keyof typeof wants = 'value';
  const afterValue = () => (open.length ? 'next' : 'end');
  token.lastIndex = 0;
  for (;;) {
    const from = token.lastIndex;
    const start = from + (/^\s*/.exec(text.slice(from))?.[0].length ?? 0);
    const fault = (message: string) => ({ at: start, message });
    if (start === text.length) return fault(`${want === 'next' ? `the closing ${open.at(-1) === '{' ? '}' : ']'} is missing` : wants[want]}; the text ends here.`);
    const match = token.exec(text);
    if (!match) {
      if (text[start] === '"') return fault('this text in quotes does not end on its line, or has a \\ that means nothing.');
      return fault(`${wants[want]}, not ${/^[^\s,:{}[\]]{1,20}|^./.exec(text.slice(start))?.[0] ?? ''}.`);
    }
    const [, sign, string] = match;
    const closes = (bracket: '{' | '[') => {
      if (open.at(-1) !== bracket) return false;
      open.pop();
      return true;
    };
    if (want === 'value' || want === 'first') {
      if (sign === '{' || sign === '[') {
        open.push(sign);
        want = sign === '{' ? 'firstKey' : 'first';
      } else if (sign === undefined || (want === 'first' && sign === ']' && closes('['))) want = afterValue();
      else return fault(`${wants[want]}, not ${sign}.`);
    } else if (want === 'key' || want === 'firstKey') {
      if (string !== undefined) want = 'colon';
      else if (want === 'firstKey' && sign === '}' && closes('{')) want = afterValue();
      else return fault(`${wants[want]}, not ${match[0].trim()}.`);
    } else if (want === 'colon') {
      if (sign !== ':') return fault(`${wants[want]}, not ${match[0].trim()}.`);
      want = 'value';
    } else if (want === 'next') {
      if (sign === ',') want = open.at(-1) === '{' ? 'key' : 'value';
      else if ((sign === '}' && closes('{')) || (sign === ']' && closes('['))) want = afterValue();
      else return fault(`${wants[want]}, not ${match[0].trim()}.`);
    } else return fault(`${wants[want]}.`);
  }
}
