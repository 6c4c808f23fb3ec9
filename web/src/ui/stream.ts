/**
 * Server-sent events over fetch, since EventSource cannot send headers.
 *
 * States: connecting -> live -> reconnecting -> live ..., and from any of them failed if the server
 * refuses the stream for a reason that retrying does not fix. After a disconnect, the stream
 * resumes after the last received ID.
 */
import { createParser } from 'eventsource-parser';
import { useEffect, useEffectEvent, useState } from 'react';
import { consoleHeaders } from './session';

export type StreamState = 'connecting' | 'live' | 'reconnecting' | 'failed';

export interface StreamMessage {
  id: string | undefined;
  event: string | undefined;
  data: string;
}

export interface StreamOptions {
  url: string;
  /** Resume after this ID. undefined starts with new events. */
  lastEventId?: string | undefined;
  signal: AbortSignal;
  onMessage: (message: StreamMessage) => void;
  onState: (state: StreamState) => void;
  /** Called if the session is not, or no longer, accepted. */
  onUnauthorized?: () => void;
  fetch?: typeof fetch;
  /** Waits the given number of milliseconds, or until the signal. */
  wait?: (ms: number, signal: AbortSignal) => Promise<void>;
  random?: () => number;
}

/** Servers send a comment every 15 s. A stream that is silent for longer than this is dead. */
const silenceMs = 45_000;
const firstDelayMs = 1_000;
const maxDelayMs = 30_000;

/**
 * The wait before the n-th attempt in a row (from 1): doubled each time, with jitter, at most 30 s.
 */
export function backoff(attempt: number, random: () => number): number {
  const ceiling = Math.min(maxDelayMs, firstDelayMs * 2 ** (attempt - 1));
  return ceiling / 2 + (random() * ceiling) / 2;
}

/** Follows a stream until the signal, or until the server refuses it. */
export async function followStream(options: StreamOptions): Promise<void> {
  const { url, signal, onMessage, onState } = options;
  const get = options.fetch ?? fetch;
  const wait = options.wait ?? sleep;
  let lastEventId = options.lastEventId;
  let attempt = 0;

  onState('connecting');
  const ended = () => signal.aborted;
  while (!ended()) {
    const connection = new AbortController();
    const both = AbortSignal.any([signal, connection.signal]);
    let silence: ReturnType<typeof setTimeout> | undefined;
    try {
      const headers: Record<string, string> = { ...consoleHeaders, Accept: 'text/event-stream' };
      if (lastEventId !== undefined) headers['Last-Event-ID'] = lastEventId;
      const response = await get(url, { headers, signal: both, cache: 'no-store' });
      if (response.status === 401) {
        onState('failed');
        options.onUnauthorized?.();
        return;
      }
      if (response.status >= 400 && response.status < 500 && response.status !== 429 && response.status !== 408) {
        onState('failed');
        return;
      }
      if (response.ok && response.body) {
        onState('live');
        const parser = createParser({
          onEvent(message) {
            if (message.id !== undefined) lastEventId = message.id;
            onMessage({ id: message.id, event: message.event, data: message.data });
          },
        });
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          clearTimeout(silence);
          silence = setTimeout(() => connection.abort(), silenceMs);
          const { done, value } = await reader.read();
          if (done) break;
          attempt = 0;
          parser.feed(value);
        }
      }
    } catch {
      // The loop reconnects after lost connections.
    } finally {
      clearTimeout(silence);
      connection.abort();
    }
    if (ended()) return;
    onState('reconnecting');
    attempt++;
    await wait(backoff(attempt, options.random ?? Math.random), signal);
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Follows a stream while the component is mounted and enabled. */
export function useStream(options: {
  url: string;
  /** Begins the stream anew when it changes. */
  epoch: number;
  enabled: boolean;
  lastEventId?: string | undefined;
  onMessage: (message: StreamMessage) => void;
  onUnauthorized: () => void;
}): StreamState {
  const { url, epoch, enabled } = options;
  const [state, setState] = useState<StreamState>('connecting');
  const onMessage = useEffectEvent(options.onMessage);
  const onUnauthorized = useEffectEvent(options.onUnauthorized);
  const lastEventId = useEffectEvent(() => options.lastEventId);
  useEffect(() => {
    if (!enabled) return;
    const end = new AbortController();
    void followStream({ url, lastEventId: lastEventId(), signal: end.signal, onState: setState, onMessage, onUnauthorized });
    return () => end.abort();
  }, [url, epoch, enabled]);
  return state;
}
