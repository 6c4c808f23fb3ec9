/** The console and the screen of a VM. Their viewers are large, so they are loaded on demand. */
import { lazy, Suspense, type ReactNode } from 'react';
import { ApiError } from '../../ui/problem';
import { Card } from '../../ui/facts';
import { Failure, Notice } from '../../ui/notice';
import { Status, type Tone } from '../../ui/status';
import type { VM } from '../api';
import { alive } from '../states';
import type { Link } from './socket';

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

function Viewer({ vm, what, children }: { vm: VM; what: string; children: ReactNode }) {
  if (!alive(vm.state)) {
    return (
      <Notice tone="info">
        The VM is {vm.state}. It has a {what} while it runs.
      </Notice>
    );
  }
  return (
    <Card flush>
      <Suspense fallback={<p className="card-body muted">Loading…</p>}>{children}</Suspense>
    </Card>
  );
}

export function Console({ vm }: { vm: VM }) {
  return (
    <Viewer vm={vm} what="console">
      <Terminal id={vm.id} name={vm.name} />
    </Viewer>
  );
}

export function Screen({ vm }: { vm: VM }) {
  return (
    <Viewer vm={vm} what="screen">
      <ScreenView id={vm.id} name={vm.name} />
    </Viewer>
  );
}
