/** One's own account: who one is, the password, and the second factor. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body } from '../ui/client';
import { CopyBox, CopyButton } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { Card, Facts } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Failure, Notice } from '../ui/notice';
import { Page } from '../ui/page';
import { reason } from '../ui/problem';
import { Status } from '../ui/status';
import { EndTime } from '../ui/time';
import { toast } from '../ui/toast';
import { api, schemas } from './api';

export function Account() {
  const queries = useQueryClient();
  const { data: me, error, refetch } = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => body(api.GET('/api/auth/me', { signal })) });
  const [setup, setSetup] = useState<{ secret: string; qr: string }>();
  const [codes, setCodes] = useState<readonly string[]>();
  const [disabling, setDisabling] = useState(false);
  const [changing, setChanging] = useState(false);
  const refresh = () => queries.invalidateQueries({ queryKey: ['me'] });
  const begin = async () => {
    try {
      const made = await body(api.POST('/api/auth/2fa/setup'));
      setSetup({ secret: made.secret, qr: made.qr_code });
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  if (!me) return <Page title="My account">{error ? <Failure error={error} retry={() => void refetch()} /> : <p className="muted">Loading…</p>}</Page>;
  return (
    <Page title="My account" lead={`Signed in as ${me.username}.`}>
      <div className="grid">
        <Card title="Account">
          <Facts
            facts={[
              ['Username', me.username],
              ['Role', me.role],
              ['Tenant', me.tenant ?? <span key="t" className="muted">{me.role === 'admin' ? 'none: you see everything' : 'none'}</span>],
              ['This session ends', <EndTime key="e" at={me.expires_at} />],
              [
                'Password',
                <button key="c" type="button" className="btn btn-small" onClick={() => setChanging(true)}>
                  Change it…
                </button>,
              ],
            ]}
          />
        </Card>
        <Card title="Second factor">
          <div className="stack">
            <div>
              {me.two_factor ? <Status tone="ok">on</Status> : <Status tone="idle">off</Status>}
            </div>
            <p>{me.two_factor ? 'To sign in, a code of your authenticator app is asked for after the password.' : 'With a second factor, signing in takes a code of an app on your phone, too. A stolen password is not enough then.'}</p>
            <div>
              {me.two_factor ? (
                <button type="button" className="btn btn-danger" onClick={() => setDisabling(true)}>
                  Turn it off…
                </button>
              ) : (
                <button type="button" className="btn btn-primary" onClick={() => void begin()}>
                  Set it up…
                </button>
              )}
            </div>
          </div>
        </Card>
      </div>
      {setup && (
        <FormDialog<{ code: string }>
          title="Set up the second factor"
          schema={schemas.VerifyTwoFactor}
          fields={[{ name: 'code', label: 'Code that the app shows now', hint: 'It proves that the app has the secret' }]}
          action="Turn it on"
          onClose={() => setSetup(undefined)}
          onSubmit={async ({ code }) => {
            const on = await body(api.POST('/api/auth/2fa/verify', { body: { code: code.trim() } }));
            setSetup(undefined);
            setCodes(on.recovery_codes);
          }}
        >
          <p>Scan this picture with an authenticator app, or type the secret into it.</p>
          <img className="qr" src={setup.qr} alt="A QR code with the secret below" width={256} height={256} />
          <CopyBox label="Secret" text={setup.secret} />
        </FormDialog>
      )}
      {codes && (
        <Dialog title="Keep these recovery codes" onClose={() => setCodes(undefined)} once>
          <div className="dialog-body stack">
            <Notice tone="ok">The second factor is on.</Notice>
            <p>Each of these stands in for a code once, should you lose your device. They are shown only now: print them, or keep them where you keep passwords.</p>
            <ul className="codes mono" aria-label="Recovery codes">
              {codes.map((c) => (
                <li key={c}>{c}</li>
              ))}
            </ul>
            <div>
              <CopyButton text={codes.join('\n')} label="Copy all codes" withText />
            </div>
          </div>
          <div className="dialog-foot">
            <button
              type="button"
              className="btn btn-primary"
              onClick={() => {
                setCodes(undefined);
                void refresh();
              }}
            >
              I have kept them
            </button>
          </div>
        </Dialog>
      )}
      {changing && (
        <FormDialog<{ current_password: string; new_password: string }>
          title="Change your password"
          schema={schemas.ChangePassword}
          fields={[
            { name: 'current_password', label: 'Current password', kind: 'password' },
            { name: 'new_password', label: 'New password', kind: 'password', hint: 'At least 8 characters' },
          ]}
          action="Change it"
          onClose={() => setChanging(false)}
          onSubmit={async (input) => {
            await api.POST('/api/auth/password', { body: input });
            setChanging(false);
            toast('Your password is changed. Sign in again with the new one.');
            await refresh();
          }}
        >
          <p>All your sessions end, also this one. The password of an account of the host is changed on the host.</p>
        </FormDialog>
      )}
      {disabling && (
        <FormDialog<{ code: string }>
          title="Turn the second factor off"
          schema={schemas.DisableTwoFactor}
          fields={[{ name: 'code', label: 'Code', hint: 'That of the app, or a recovery code' }]}
          action="Turn it off"
          onClose={() => setDisabling(false)}
          onSubmit={async ({ code }) => {
            await api.POST('/api/auth/2fa/disable', { body: { code: code.trim() } });
            setDisabling(false);
            toast('The second factor is off.');
            await refresh();
          }}
        >
          <p>From then on, your password alone is enough to sign in.</p>
        </FormDialog>
      )}
    </Page>
  );
}
