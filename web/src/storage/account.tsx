/** Who one is here, and what that allows. */
import { Card, Facts } from '../ui/facts';
import { Page } from '../ui/page';
import { useOwnSession, useSession } from '../ui/session';
import { EndTime } from '../ui/time';

/** What each role may do, as the contract has it. */
const roles: Record<string, string> = {
  viewer: 'reads',
  operator: 'makes volumes, images, groups, snapshots, clones, buckets, backups and schedules, and handles alerts',
  admin: 'everything',
};

export function Account() {
  const { info } = useSession(useOwnSession());
  const who = info?.who;
  if (!who) return null;
  return (
    <Page title="My account" lead={info.sign_out ? `Signed in as ${who.name}.` : 'The gateway asks nobody for a token.'}>
      <div className="grid">
        <Card title="Account">
          <Facts
            facts={[
              ['Name', who.name],
              ['Role', `${who.access ?? 'not known'}: ${roles[who.access ?? ''] ?? 'what the service allows'}`],
              ['Tenant', who.tenant ?? <span key="t" className="muted">none: you see everything</span>],
              info.expires_at !== undefined && ['This session ends', <EndTime key="e" at={info.expires_at} />],
            ]}
          />
        </Card>
        <Card title="Token">
          {info.sign_out ? (
            <p>Your role and your tenant are those of the token that you signed in with. To change them, sign in with another token. Whoever has the secret of the gateway, its setting jwt-secret, issues tokens.</p>
          ) : (
            <p>
              Everybody who reaches this gateway is an admin. To ask people for tokens, start it with <code>--auth-required</code>.
            </p>
          )}
        </Card>
      </div>
    </Page>
  );
}
