/** Shows a console to those who are signed in, and the sign-in to everybody else. */
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, type ReactNode } from 'react';
import { Failure } from './notice';
import { SessionProvider, useSession, type Session } from './session';
import { SignInDialog, SignInPage } from './signin';
import { Toasts } from './toast';

export function Gate({ session, children }: { session: Session; children: ReactNode }) {
  const { phase, info, error, epoch } = useSession(session);
  const queries = useQueryClient();
  useEffect(() => void session.load(), [session]);
  const person = info?.who?.name;
  // Data of one user must not be visible to the next.
  useEffect(() => {
    if (phase === 'out') queries.clear();
  }, [phase, person, queries]);
  // What failed while the session was over is asked again.
  useEffect(() => {
    if (epoch > 1) void queries.invalidateQueries();
  }, [epoch, queries]);

  if (!info || phase === 'unknown') {
    return <main className="signin">{error === undefined ? <span className="muted">Loading…</span> : <Failure error={error} retry={() => void session.load()} />}</main>;
  }
  if (phase === 'out') {
    return (
      <>
        <SignInPage session={session} info={info} error={error} />
        <Toasts />
      </>
    );
  }
  return (
    <SessionProvider value={session} key={person}>
      {children}
      {phase === 'over' && <SignInDialog session={session} info={info} />}
    </SessionProvider>
  );
}
