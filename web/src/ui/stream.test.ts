import { describe, expect, it } from 'vitest';
import { backoff, followStream, type StreamMessage, type StreamState } from './stream';

/** A server that gives its answers one after the other, and then ends the test. */
function scripted(...answers: (() => Response)[]) {
  const end = new AbortController();
  const requests: Headers[] = [];
  const waits: number[] = [];
  const states: StreamState[] = [];
  const messages: StreamMessage[] = [];
  let unauthorized = 0;
  const run = (lastEventId?: string) =>
    followStream({
      url: '/stream',
      lastEventId,
      signal: end.signal,
      onMessage: (m) => messages.push(m),
      onState: (s) => states.push(s),
      onUnauthorized: () => unauthorized++,
      fetch: (_, init) => {
        requests.push(new Headers(init?.headers));
        const next = answers.shift();
        if (next) return Promise.resolve(next());
        end.abort();
        return Promise.reject(new TypeError('network'));
      },
      wait: (ms) => {
        waits.push(ms);
        return Promise.resolve();
      },
      random: () => 1,
    });
  return { run, requests, waits, states, messages, unauthorized: () => unauthorized };
}

const stream = (text: string) => () => new Response(new Blob([text]).stream(), { status: 200 });
const status = (code: number) => () => new Response('{}', { status: code });

describe('followStream', () => {
  it('sends the console’s header, and resumes behind the last id it has seen', async () => {
    const s = scripted(stream('id: 7\nevent: activity\ndata: {"a":1}\n\n: heartbeat\n\nid: 8\ndata: x\n\n'), stream('data: half'));
    await s.run('5');
    expect(s.messages).toEqual([
      { id: '7', event: 'activity', data: '{"a":1}' },
      { id: '8', event: undefined, data: 'x' },
    ]);
    expect(s.requests.map((h) => [h.get('X-Mainstay-Console'), h.get('Last-Event-ID')])).toEqual([
      ['console', '5'],
      ['console', '8'],
      ['console', '8'],
    ]);
    expect(s.states).toEqual(['connecting', 'live', 'reconnecting', 'live', 'reconnecting']);
  });

  it('waits longer after every failure, and begins anew once something came', async () => {
    const s = scripted(status(503), status(500), status(429), stream('data: 1\n\n'), status(503));
    await s.run();
    expect(s.waits).toEqual([1000, 2000, 4000, 1000, 2000]);
    expect(s.states.filter((x) => x === 'live')).toHaveLength(1);
  });

  it.each([[403], [404], [400]])('gives up on %d, which waiting does not mend', async (code) => {
    const s = scripted(status(code));
    await s.run();
    expect(s.states).toEqual(['connecting', 'failed']);
    expect(s.requests).toHaveLength(1);
  });

  it('says that the session is no longer accepted', async () => {
    const s = scripted(status(401));
    await s.run();
    expect(s.unauthorized()).toBe(1);
    expect(s.states.at(-1)).toBe('failed');
  });
});

describe('backoff', () => {
  it('stays between half and the whole of a ceiling that doubles up to 30 s', () => {
    for (const [attempt, ceiling] of [[1, 1000], [2, 2000], [5, 16_000], [6, 30_000], [40, 30_000]] as const) {
      expect(backoff(attempt, () => 0)).toBe(ceiling / 2);
      expect(backoff(attempt, () => 1)).toBe(ceiling);
    }
  });
});
