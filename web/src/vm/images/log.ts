/** What the tools that make an image print, followed by offset. */
import { useEffect, useState } from 'react';
import { body } from '../../ui/client';
import { ApiError } from '../../ui/problem';
import { api, type ImageLog } from '../api';

/** How many characters are shown. Those before are dropped. */
export const mostShown = 512 * 1024;

const pollMs = 1_000;

export interface Followed {
  text: string;
  /** Where the next part begins. */
  next: number;
  /** Something is missing before the text, or in it. */
  cut: boolean;
  complete: boolean;
}

export const begun: Followed = { text: '', next: 0, cut: false, complete: false };

/** The log with another part of it. */
export function append(log: Followed, part: ImageLog, most = mostShown): Followed {
  const missing = part.offset > log.next;
  const whole = log.text + (missing && log.text ? '…\n' : '') + part.text;
  // It begins with a whole line.
  const text = whole.length > most ? whole.slice(whole.indexOf('\n', whole.length - most - 1) + 1) : whole;
  return { text, next: part.next, cut: log.cut || missing || text.length < whole.length, complete: part.complete };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      done();
    });
  });
}

/** The log of an image, until it is complete. An error is that of the last request, which is repeated. */
export function useImageLog(id: string): { log: Followed | undefined; error: unknown } {
  const [log, setLog] = useState<Followed>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const end = new AbortController();
    const { signal } = end;
    const follow = async () => {
      let now = begun;
      while (!signal.aborted && !now.complete) {
        try {
          const part = await body(api.GET('/api/images/{id}/log', { params: { path: { id }, query: { offset: now.next } }, signal }));
          const more = part.next > now.next;
          now = append(now, part);
          setLog(now);
          setError(undefined);
          if (more) continue;
        } catch (e) {
          if (end.signal.aborted) return;
          setError(e);
          if (e instanceof ApiError && (e.status === 404 || e.status === 403)) return;
        }
        await pause(pollMs, signal);
      }
    };
    void follow();
    return () => end.abort();
  }, [id]);
  return { log, error };
}
