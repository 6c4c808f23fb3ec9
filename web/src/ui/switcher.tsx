/**
 * Leads to the consoles of the other services of this installation. In an installation of one
 * service it is only its name.
 */
import { useQuery } from '@tanstack/react-query';
import type { MouseEvent } from 'react';
import { Icon } from './icon';
import { Popover } from './menu';
import { ApiError, errorFrom, reason, unreachable } from './problem';
import { consoleHeaders } from './session';
import { toast } from './toast';

export interface Service {
  /** Empty if nobody gets tickets for it. */
  name?: string;
  title: string;
  url: string;
  state: 'up' | 'down';
  current: boolean;
}

async function ask<T>(path: string, init: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, cache: 'no-store', headers: { ...consoleHeaders, 'Content-Type': 'application/json' } });
  } catch {
    throw unreachable();
  }
  if (!response.ok) throw await errorFrom(response);
  return (await response.json()) as T;
}

/** The address of a service's console, with a ticket if there is one for this person. */
export async function addressOf(service: Service): Promise<string> {
  if (!service.name) return service.url;
  try {
    return (await ask<{ url: string }>('/console/tickets', { method: 'POST', body: JSON.stringify({ service: service.name }) })).url;
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) return service.url;
    throw e;
  }
}

/** Goes to a service's console, signed in if that can be. */
export function switchTo(service: Service): void {
  addressOf(service).then(
    (url) => location.assign(url),
    (e: unknown) => toast(reason(e), 'bad'),
  );
}

export function useServices(): readonly Service[] {
  const { data = [] } = useQuery({ queryKey: ['services'], queryFn: () => ask<Service[]>('/console/services'), staleTime: 10_000, refetchInterval: 30_000 });
  return data;
}

export function Switcher({ title }: { title: string }) {
  const services = useServices();
  const current = services.find((s) => s.current)?.title ?? title;
  if (services.length < 2) return <span className="brand-service">{title}</span>;
  const go = (event: MouseEvent, service: Service) => {
    // A new tab or window has no ticket: the browser opens the address itself.
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    switchTo(service);
  };
  return (
    <Popover
      label="Switch to another service"
      className="btn-quiet switcher"
      button={
        <>
          <span className="brand-service">{current}</span>
          <Icon name="chevron" />
        </>
      }
    >
      {() => (
        <ul className="services">
          {services.map((s) => (
            <li key={s.url}>
              <a href={s.url} className="menu-item" aria-current={s.current ? 'true' : undefined} onClick={(e) => (s.current ? e.preventDefault() : go(e, s))}>
                <span className={`live tone-${s.state === 'up' ? 'ok' : 'bad'}`}>
                  <span className="live-dot" />
                </span>
                {s.title}
                {s.state === 'down' && <span className="muted small">does not answer</span>}
              </a>
            </li>
          ))}
        </ul>
      )}
    </Popover>
  );
}
