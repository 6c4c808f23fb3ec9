/**
 * Signing in with name and password, and a code where the account has a second factor; with a token;
 * or through an identity provider, whatever the service accepts. It replaces the requested page, which is shown again afterwards, or is a dialog
 * over a page whose session is over.
 */
import { useState, type SyntheticEvent } from 'react';
import { Dialog } from './dialog';
import { Logo } from './icon';
import { Notice } from './notice';
import { errorFrom, reason, unreachable } from './problem';
import type { Credentials, Info, Session } from './session';

/**
 * Navigates to the identity provider, or throws the service's error. It asks the service first, so
 * that users do not end up on a raw error response.
 */
export async function goToProvider(url: string, go: (url: string) => void = (to) => location.assign(to)): Promise<void> {
  let response: Response;
  try {
    response = await fetch(url, { redirect: 'manual', cache: 'no-store' });
  } catch {
    throw unreachable();
  }
  // Browsers hide the target of a redirect. It is enough to know that there is one.
  if (response.type !== 'opaqueredirect') throw await errorFrom(response);
  go(url);
}

/** “API key” in the middle of a sentence, and “token”. */
const noun = (label: string) => label.replace(/^[A-Z](?=[a-z])/, (c) => c.toLowerCase());

interface Props {
  session: Session;
  info: Info;
  /** What went wrong before. */
  error?: unknown;
}

/** The page that people see before they have signed in. */
export function SignInPage({ session, info, error }: Props) {
  return (
    <main className="signin">
      <div className="signin-card stack">
        <div>
          <div className="brand">
            <Logo />
            <span className="brand-name">
              Mainstay <span className="brand-service">{info.title}</span>
            </span>
          </div>
          <h1>Sign in</h1>
        </div>
        {info.over && error === undefined && <Notice tone="info">Your session has ended. Sign in again to continue where you were.</Notice>}
        <SignIn session={session} info={info} error={error} />
      </div>
    </main>
  );
}

/** Asks for a new sign-in without losing what is on the page. */
export function SignInDialog({ session, info }: Props) {
  const stay = () => undefined;
  return (
    <Dialog title="Sign in again" onClose={stay} once>
      <div className="dialog-body stack">
        <Notice tone="info">Your session has ended. What you typed is still here.</Notice>
        <SignIn session={session} info={info} />
      </div>
    </Dialog>
  );
}

function SignIn({ session, info, error: before }: Props) {
  const { accepts } = info;
  const [tokenChosen, setTokenChosen] = useState(false);
  const withToken = tokenChosen || !accepts.password;
  const [username, setUsername] = useState('');
  const [password, setPassword] = useState('');
  const [token, setToken] = useState('');
  // The second step: the password was right, and the service asks for a code.
  const [asked, setAsked] = useState(false);
  const [code, setCode] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(before === undefined ? '' : reason(before));

  const attempt = async (what: () => Promise<void>) => {
    setBusy(true);
    setError('');
    try {
      await what();
    } catch (e) {
      setError(reason(e));
      setBusy(false);
    }
  };
  const credentials = (): Credentials => {
    if (!withToken) {
      if (!username || !password) throw new Error('Fill in both username and password.');
      if (asked && !code.trim()) throw new Error('Type the code of your authenticator app, or a recovery code.');
      return { username, password, ...(asked && { code: code.trim() }) };
    }
    const pasted = token.trim();
    const name = noun(accepts.token);
    if (!pasted) throw new Error(`Paste the ${name} first.`);
    // Such text cannot be sent in a header.
    if (!/^[\x21-\x7e]+$/.test(pasted)) throw new Error(`This is not a valid ${name}: it has spaces or characters that no ${name} has.`);
    return { token: pasted };
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    void attempt(async () => {
      if ((await session.signIn(credentials())) !== 'code') return;
      setAsked(true);
      setBusy(false);
    });
  };
  const back = () => {
    setAsked(false);
    setCode('');
    setError('');
  };

  if (asked) {
    return (
      <>
        {error && <Notice tone="bad">{error}</Notice>}
        <form className="stack" noValidate onSubmit={submit}>
          <p>
            Signing in as <b>{username}</b>. This account has a second factor.
          </p>
          <div className="field">
            <label htmlFor="code">Code</label>
            {/* eslint-disable-next-line jsx-a11y/no-autofocus -- the step before had the focus, and is gone */}
            <input id="code" className="input mono" autoFocus autoComplete="one-time-code" autoCapitalize="none" spellCheck={false} aria-describedby="code-hint" value={code} onChange={(e) => setCode(e.target.value)} />
            <span id="code-hint" className="field-hint">
              The six digits that your authenticator app shows now, or one of your recovery codes.
            </span>
          </div>
          <button type="submit" className="btn btn-primary" disabled={busy}>
            {busy ? 'Signing in…' : 'Sign in'}
          </button>
          <button type="button" className="btn" disabled={busy} onClick={back}>
            Back
          </button>
        </form>
      </>
    );
  }

  return (
    <>
      {error && <Notice tone="bad">{error}</Notice>}
      <form className="stack" noValidate onSubmit={submit}>
        {withToken ? (
          <div className="field">
            <label htmlFor="token">{accepts.token}</label>
            <input id="token" className="input mono" type="password" autoComplete="off" value={token} onChange={(e) => setToken(e.target.value)} />
            <span className="field-hint">{accepts.token_hint}</span>
          </div>
        ) : (
          <>
            <div className="field">
              <label htmlFor="username">Username</label>
              <input id="username" className="input" autoComplete="username" autoCapitalize="none" spellCheck={false} value={username} onChange={(e) => setUsername(e.target.value)} />
            </div>
            <div className="field">
              <label htmlFor="password">Password</label>
              <input id="password" className="input" type="password" autoComplete="current-password" value={password} onChange={(e) => setPassword(e.target.value)} />
            </div>
          </>
        )}
        <button type="submit" className="btn btn-primary" disabled={busy}>
          {busy ? 'Signing in…' : 'Sign in'}
        </button>
      </form>
      {(accepts.password || accepts.single_sign_on !== '') && <div className="rule">or</div>}
      <div className="stack-tight">
        {accepts.password && (
          <button
            type="button"
            className="btn"
            disabled={busy}
            onClick={() => {
              setError('');
              setTokenChosen(!tokenChosen);
            }}
          >
            {withToken ? 'Use username and password' : 'Use a token'}
          </button>
        )}
        {accepts.single_sign_on !== '' && (
          <button type="button" className="btn" disabled={busy} onClick={() => void attempt(() => goToProvider(accepts.single_sign_on))}>
            Sign in with single sign-on
          </button>
        )}
      </div>
    </>
  );
}
