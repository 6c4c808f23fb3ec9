/** The console and the screen of a VM. Their viewers are large, so they are loaded on demand. */
import { lazy, Suspense, type ReactNode } from 'react';
import { Card } from '../facts';
import { Failure, Notice } from '../notice';
import { ApiError } from '../problem';
import { Status, type Tone } from '../status';
import type { Guest, Link } from './socket';
import './viewer.css';

const Terminal = lazy(() => import('./terminal'));
const ScreenView = lazy(() => import('./screen'));

const words: Record<Link['state'], [tone: Tone, text: string]> = {
  connecting: ['info', 'connecting'],
  open: ['ok', 'connected'],
  waiting: ['warn', 'connecting again'],
  refused: ['bad', 'not connected'],
};

/** The state of the connection in one word. */
export function LinkState({ link }: { link: Link }) {
  const [tone, text] = words[link.state];
  return (
    <span role="status">
      <Status tone={tone}>{text}</Status>
    </span>
  );
}

/** Why there is nothing to show. It is not an error if a VM has no screen. */
export function Refused({ error, what, hint = '' }: { error: unknown; what: string; /** What has one. */ hint?: string }) {
  if (error instanceof ApiError && error.status === 409) {
    return (
      <Notice tone="info">
        <strong>There is no {what} to show:</strong> {error.message}. {hint}
      </Notice>
    );
  }
  return <Failure error={error} />;
}

/** Whether a VM has a process, and its state in a word. */
interface Running {
  runs: boolean;
  state: string;
}

function Viewer({ runs, state, what, children }: Running & { what: string; children: ReactNode }) {
  if (!runs) {
    return (
      <Notice tone="info">
        The VM is {state}. It has a {what} while it runs.
      </Notice>
    );
  }
  return (
    <Card flush>
      <Suspense fallback={<p className="card-body muted">Loading…</p>}>{children}</Suspense>
    </Card>
  );
}

export function Console({ guest, ...running }: Running & { guest: Guest }) {
  return (
    <Viewer {...running} what="console">
      <Terminal guest={guest} />
    </Viewer>
  );
}

export function Screen({ guest, ...running }: Running & { guest: Guest }) {
  return (
    <Viewer {...running} what="screen">
      <ScreenView guest={guest} />
    </Viewer>
  );
}
