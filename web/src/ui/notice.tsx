/** Notices on a page: failures and how to proceed, information, and empty states. */
import type { ReactNode } from 'react';
import { ApiError, reason } from './problem';
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

/** An error, with the request ID to report to the server's operator. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const said = reason(error);
  // Messages about the server's own failures already contain the ID.
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

/** Shown in place of an empty list, with a hint about what to do. */
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
