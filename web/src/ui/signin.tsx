/**
 * Signing in with name and password, with a token, or through an identity provider, depending on
 * the service. It replaces the requested page, which is shown again afterwards.
 */
import { useState, type SyntheticEvent } from 'react';
import { ApiError, errorFrom, reason, unreachable } from './client';
import { Logo } from './icon';
import { Notice } from './notice';

export interface SignInProps {
  service: string;
  /** Exchanges name and password for a session token. Without it, only tokens are accepted. */
  login?: (username: string, password: string) => Promise<string>;
  /** Checks a token. Throws if it is invalid. */
  check: (token: string) => Promise<unknown>;
  onToken: (token: string) => void;
  /** What tokens are called here, and a hint about them. */
  tokenLabel?: string;
  tokenHint?: string;
  /** Where single sign-on starts. Without it there is none. */
  ssoUrl?: string;
  /** Whether to explain that the session has expired. */
  expired?: boolean;
}

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

/** Missing configuration of single sign-on is not the user's fault. */
function explain(error: unknown): { text: string; tone: 'bad' | 'info' } {
  if (error instanceof ApiError && error.code === 'oidc_not_configured') {
    return { tone: 'info', text: 'Single sign-on is not set up on this server. Sign in with a username and password or with a token, or ask whoever runs the server to set it up.' };
  }
  return { tone: 'bad', text: reason(error) };
}

const anyToken = 'An admin or viewer token, global or of an org. It is kept until this tab is closed.';

export function SignIn({ service, login, check, onToken, tokenLabel = 'Token', tokenHint = anyToken, ssoUrl, expired = false }: SignInProps) {
  const [tokenChosen, setTokenChosen] = useState(false);
  const withToken = tokenChosen || !login;
  const [username, setUsername] = useState('');
  const [password, setPassword] = useState('');
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<{ text: string; tone: 'bad' | 'info' }>();

  const attempt = async (what: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await what();
    } catch (e) {
      setError(explain(e));
      setBusy(false);
    }
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    void attempt(async () => {
      if (login && !withToken) {
        if (!username || !password) throw new Error('Fill in both username and password.');
        onToken(await login(username, password));
        return;
      }
      const pasted = token.trim();
      const noun = tokenLabel.replace(/^[A-Z](?=[a-z])/, (c) => c.toLowerCase());
      if (!pasted) throw new Error(`Paste the ${noun} first.`);
      // Such text cannot be sent in a header.
      if (!/^[\x21-\x7e]+$/.test(pasted)) throw new Error(`This is not a valid ${noun}: it has spaces or characters that no ${noun} has.`);
      await check(pasted);
      onToken(pasted);
    });
  };

  return (
    <main className="signin">
      <div className="signin-card stack">
        <div>
          <div className="brand">
            <Logo />
            <span className="brand-name">
              Mainstay <span className="brand-service">{service}</span>
            </span>
          </div>
          <h1>Sign in</h1>
        </div>
        {expired && !error && <Notice tone="info">Your session is over. Sign in again to go on where you were.</Notice>}
        {error && <Notice tone={error.tone}>{error.text}</Notice>}
        <form className="stack" noValidate onSubmit={submit}>
          {withToken ? (
            <div className="field">
              <label htmlFor="token">{tokenLabel}</label>
              <input id="token" className="input mono" type="password" autoComplete="off" value={token} onChange={(e) => setToken(e.target.value)} />
              <span className="field-hint">{tokenHint}</span>
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
        {(login ?? ssoUrl) !== undefined && <div className="rule">or</div>}
        <div className="stack-tight">
          {login && (
            <button
              type="button"
              className="btn"
              disabled={busy}
              onClick={() => {
                setError(undefined);
                setTokenChosen(!tokenChosen);
              }}
            >
              {withToken ? 'Use username and password' : 'Use a token'}
            </button>
          )}
          {ssoUrl !== undefined && (
            <button type="button" className="btn" disabled={busy} onClick={() => void attempt(() => goToProvider(ssoUrl))}>
              Sign in with single sign-on
            </button>
          )}
        </div>
      </div>
    </main>
  );
}
