/** Notices within a page: what failed and how to go on, what is worth knowing, what is not there yet. */
import type { ReactNode } from 'react';
import { ApiError, reason } from './client';
import { Icon, type IconName } from './icon';
import type { Tone } from './status';

export function Notice({ tone, children, action }: { tone: Tone; children: ReactNode; action?: ReactNode }) {
  return (
    <div className={`notice tone-${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      <Icon name={tone === 'ok' ? 'check' : tone === 'info' || tone === 'idle' ? 'info' : 'alert'} />
      <div className="notice-body">{children}</div>
      {action}
    </div>
  );
}

/** What failed, and the id to give to whoever runs the server. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const said = reason(error);
  // What the server says of its own failures has the id already.
  const id = error instanceof ApiError && error.requestId && !said.includes(error.requestId) ? error.requestId : undefined;
  return (
    <Notice
      tone="bad"
      action={
        retry && (
          <button type="button" className="btn btn-small" onClick={retry}>
            Try again
          </button>
        )
      }
    >
      {said}
      {id && (
        <>
          {' '}
          <span className="small">
            (request id <code>{id}</code>)
          </span>
        </>
      )}
    </Notice>
  );
}

/** Nothing is here, and what to do about it. */
export function Empty({ icon, title, children, action }: { icon: IconName; title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <h3>{title}</h3>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}
