/** Sign-in, and the routes to the pages. */
import { useCallback } from 'react';
import { Link, Route, Switch } from 'wouter';
import { Gate } from '../ui/gate';
import { Empty, Failure } from '../ui/notice';
import { Page } from '../ui/page';
import type { Find, Found } from '../ui/palette';
import { Shell, type NavGroup } from '../ui/shell';
import { session, type VIP } from './api';
import { Backends } from './backends';
import { Banners } from './banners';
import { Sessions } from './bgp';
import { backendLabel, vipName, vipPath } from './links';
import { LiveProvider, useLive } from './live';
import { NodePage } from './node';
import { Overview } from './overview';
import { backendState } from './states';
import { VIPDetail } from './vips/detail';
import { VIPs } from './vips/list';

const service = 'Load balancer';

export function App() {
  return (
    <Gate session={session}>
      <LiveProvider>
        <Frame />
      </LiveProvider>
    </Gate>
  );
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

/** How many of each kind are offered. */
const most = 8;

/** The VIPs and backends whose address contains the text. */
function found(vips: readonly VIP[], text: string): Found[] {
  const backends = new Set(vips.flatMap((v) => v.backends.map(backendLabel)));
  return [
    ...vips.filter((v) => v.name.includes(text)).slice(0, most).map((v): Found => ({ label: v.name, href: vipPath(v.name), icon: 'balance', kind: 'VIP' })),
    ...[...backends].filter((b) => b.includes(text)).slice(0, most).map((b): Found => ({ label: b, href: `/backends?filter=${encodeURIComponent(b)}`, icon: 'server', kind: 'backend' })),
  ];
}

function Frame() {
  const groups = useNav();
  const { state, error, retry, reading } = useLive();
  const find: Find = useCallback((text) => Promise.resolve(found(reading?.vips ?? [], text)), [reading]);
  return (
    <Shell service={service} guide="lb" groups={groups} live={state} find={find}>
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
