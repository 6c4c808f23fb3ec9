/**
 * The sockets of a VM: its serial console and its screen. Browsers cannot send credentials with a
 * socket, so each one is opened with a ticket that is valid once. A socket that ends is reopened
 * with a new ticket, with increasing waits.
 */
import { useEffect, useEffectEvent, useState } from 'react';
import { ApiError } from '../problem';

export type Channel = 'console' | 'screen';

/** A VM as a service reaches its console and its screen. It must stay the same object while it is the same VM. */
export interface Guest {
  name: string;
  /** The address of a channel on this server, with its query. */
  address: (channel: Channel) => string;
  /** Asks for a channel without opening a socket. It fails with the reason why there is none, or with 426. */
  ask: (channel: Channel) => Promise<unknown>;
  /** Asks for a ticket, which opens one socket. */
  ticket: () => Promise<string>;
}

export interface Link {
  state: 'connecting' | 'open' | 'waiting' | 'refused';
  /** Why it was refused. */
  error?: unknown;
}

const firstMs = 500;
const longestMs = 10_000;
/**
 * A connection that lasted at least this long counts as successful: the next attempt follows soon.
 */
const soundMs = 5_000;

/** How long to wait before the attempt after this number of failures. */
export const waitMs = (failures: number) => Math.min(longestMs, firstMs * 2 ** failures);

/**
 * Whether retrying may help: there was no response, the daemon is busy, or the VM's state may
 * change.
 */
export function passing(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500);
}

/** A position in a console's output: the offset in bytes in the log with that name. */
export interface Position {
  log: string;
  offset: number;
}

/** The URL of a socket, and the position from which a console is replayed. */
export function socketURL(address: string, ticket: string, page: Pick<Location, 'protocol' | 'host'> = location, from?: Position): string {
  const socket = `${page.protocol === 'https:' ? 'wss:' : 'ws:'}//${page.host}${address}${address.includes('?') ? '&' : '?'}ticket=${encodeURIComponent(ticket)}`;
  return from ? `${socket}&offset=${from.offset}&log=${encodeURIComponent(from.log)}` : socket;
}

/** Browsers do not tell why a socket was refused. The same request without a socket does. */
async function refusal(ask: () => Promise<unknown>): Promise<ApiError | undefined> {
  try {
    await ask();
  } catch (e) {
    // 426 means that only the upgrade to a socket was missing.
    if (e instanceof ApiError && e.status >= 400 && e.status < 500 && e.status !== 426 && e.status !== 429) return e;
  }
  return undefined;
}

/**
 * Keeps a socket open. `attach` is called for each new one before it is open, and returns a
 * function that ends its use. `reached` returns the position from which a console continues.
 */
export function useSocket(guest: Guest, channel: Channel, attach: (socket: WebSocket) => () => void, reached?: () => Position): Link {
  const [link, setLink] = useState<Link>({ state: 'connecting' });
  const onSocket = useEffectEvent(attach);
  const position = useEffectEvent(() => reached?.());
  useEffect(() => {
    let over = false;
    let failures = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let drop: () => void = () => undefined;

    const refuse = (error: unknown) => {
      if (!over) setLink({ state: 'refused', error });
    };
    const again = () => {
      if (over) return;
      setLink({ state: 'waiting' });
      timer = setTimeout(() => void connect(), waitMs(failures++));
    };
    const ended = async (openedAt: number | undefined) => {
      drop();
      drop = () => undefined;
      if (over) return;
      if (openedAt !== undefined && performance.now() - openedAt > soundMs) failures = 0;
      const error = openedAt === undefined ? await refusal(() => guest.ask(channel)) : undefined;
      if (error) refuse(error);
      else again();
    };
    const connect = async () => {
      let ticket: string;
      try {
        // Many VMs have no screen, and noVNC reports refusals in its own words, so check first. For
        // a console, the check would start a shell in a sandbox, so it is done only after a
        // refusal.
        const error = channel === 'screen' ? await refusal(() => guest.ask(channel)) : undefined;
        if (error) {
          refuse(error);
          return;
        }
        ticket = await guest.ticket();
      } catch (error) {
        if (passing(error)) again();
        else refuse(error);
        return;
      }
      if (over) return;
      const socket = new WebSocket(socketURL(guest.address(channel), ticket, location, position()));
      socket.binaryType = 'arraybuffer';
      let openedAt: number | undefined;
      const detach = onSocket(socket);
      drop = () => {
        detach();
        socket.close();
      };
      socket.addEventListener('open', () => {
        openedAt = performance.now();
        setLink({ state: 'open' });
      });
      socket.addEventListener('close', () => void ended(openedAt));
    };
    void connect();
    return () => {
      over = true;
      clearTimeout(timer);
      drop();
    };
  }, [guest, channel]);
  return link;
}
