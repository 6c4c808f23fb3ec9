/** Sign-in, and the routes to the pages. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback, useEffect } from 'react';
import { Link, Route, Switch } from 'wouter';
import { errorFrom, unreachable } from '../ui/client';
import { Empty, Failure } from '../ui/notice';
import { Page } from '../ui/page';
import { useToken } from '../ui/session';
import { Shell, type NavGroup } from '../ui/shell';
import { SignIn } from '../ui/signin';
import { Toasts } from '../ui/toast';
import { session } from './api';
import { Backends } from './backends';
import { Banners } from './banners';
import { Sessions } from './bgp';
import { vipName } from './links';
import { LiveProvider, useLive } from './live';
import { NodePage } from './node';
import { Overview } from './overview';
import { backendState } from './states';
import { VIPDetail } from './vips/detail';
import { VIPs } from './vips/list';

const service = 'Load balancer';

/** Sends a request to the node, with or without a key. Returns whether the node accepted it. */
async function admitted(key?: string): Promise<boolean> {
  let response: Response;
  try {
    response = await fetch('/api/v1/node', key === undefined ? {} : { headers: { Authorization: `Bearer ${key}` } });
  } catch {
    throw unreachable();
  }
  if (response.ok) return true;
  if (key === undefined && response.status === 401) return false;
  throw await errorFrom(response);
}

export function App() {
  const token = useToken(session);
  const queries = useQueryClient();
  // A node without keys, or one that accepts this browser's certificate, lets everybody in.
  const open = useQuery({ queryKey: ['open'], queryFn: () => admitted(), staleTime: Infinity, refetchOnWindowFocus: false });
  // Data of one user must not be visible to the next.
  useEffect(() => {
    if (!token) queries.removeQueries({ queryKey: ['node'] });
  }, [token, queries]);
  const lock = useCallback(() => queries.setQueryData(['open'], false), [queries]);

  if (token !== null || open.data) {
    return (
      <LiveProvider key={token} onLocked={lock}>
        <Frame onSignOut={token === null ? undefined : session.signOut} />
      </LiveProvider>
    );
  }
  if (open.data === false) {
    return (
      <>
        <SignIn
          service={service}
          check={admitted}
          onToken={session.set}
          tokenLabel="API key"
          tokenHint="An admin or a read-only key of this node. It is held in memory: a reload asks for it again."
          expired={session.expired()}
        />
        <Toasts />
      </>
    );
  }
  return <main className="signin">{open.error ? <Failure error={open.error} retry={() => void open.refetch()} /> : <span className="muted">Loading…</span>}</main>;
}

function useNav(): NavGroup[] {
  const { reading } = useLive();
  const backends = reading?.vips.flatMap((v) => v.backends) ?? [];
  return [
    { label: '', items: [{ label: 'Overview', href: '/', icon: 'overview', key: 'o' }] },
    {
      label: 'Balancing',
      items: [
        { label: 'VIPs', href: '/vips', icon: 'balance', key: 'v' },
        { label: 'Backends', href: '/backends', icon: 'server', key: 'b', count: backends.filter((b) => backendState(b) === 'down').length },
      ],
    },
    {
      label: 'Node',
      items: [
        { label: 'BGP sessions', href: '/bgp', icon: 'peers', key: 's', count: reading?.node.bgp.filter((s) => s.state !== 'established').length },
        { label: 'Configuration', href: '/node', icon: 'node', key: 'n' },
      ],
    },
  ];
}

function Frame({ onSignOut }: { onSignOut: (() => void) | undefined }) {
  const groups = useNav();
  const { state, error, retry } = useLive();
  return (
    <Shell service={service} groups={groups} live={state} who={onSignOut ? { name: 'Signed in with a key' } : { name: 'No key needed' }} onSignOut={onSignOut}>
      <Banners />
      {error === undefined ? (
        <Pages />
      ) : (
        <Page title={service}>
          <Failure error={error} retry={retry} />
        </Page>
      )}
    </Shell>
  );
}

function Pages() {
  return (
    <Switch>
      <Route path="/" component={Overview} />
      <Route path="/vips" component={VIPs} />
      <Route path="/vips/:address/:port/:protocol">
        {(params) => {
          const name = vipName(params);
          return <VIPDetail key={name} name={name} />;
        }}
      </Route>
      <Route path="/backends" component={Backends} />
      <Route path="/bgp" component={Sessions} />
      <Route path="/node" component={NodePage} />
      <Route>
        <Page title="Not found">
          <Empty icon="search" title="There is no such page here" action={<Link href="/" className="btn btn-primary">Go to the overview</Link>}>
            The address may be mistyped.
          </Empty>
        </Page>
      </Route>
    </Switch>
  );
}
