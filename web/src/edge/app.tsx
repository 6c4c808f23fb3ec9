/** Sign-in, and the routes to the pages. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Route, Switch } from 'wouter';
import { CallerProvider } from '../ui/access';
import { body } from '../ui/client';
import { Gate } from '../ui/gate';
import { NotHere } from '../ui/not-here';
import { Failure } from '../ui/notice';
import { Shell, type NavGroup, type NavItem } from '../ui/shell';
import { Silent } from '../ui/silent';
import { Activity } from './activity';
import { Alerts } from './alerts';
import { api, session, useMay, type Operation } from './api';
import { Audit } from './audit';
import { CampaignDetail } from './campaigns/detail';
import { Campaigns } from './campaigns/list';
import { DeadLetters } from './deadletters';
import { DeploymentDetail } from './deployments/detail';
import { Deployments } from './deployments/list';
import { DeviceDetail } from './devices/detail';
import { Devices } from './devices/list';
import { Events } from './events';
import { find } from './find';
import { LiveProvider, useLive } from './live';
import { Orgs } from './orgs';
import { OverviewPage } from './overview';
import { Policies } from './policies';
import { RouteDetail } from './routes/detail';
import { Routes } from './routes/list';
import { SiteDetail } from './sites/detail';
import { Sites } from './sites/list';
import { EnrollmentTokens } from './sites/tokens';

const service = 'Edge control plane';

export function App() {
  return (
    <Gate session={session}>
      <SignedIn />
    </Gate>
  );
}

function SignedIn() {
  const me = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => body(api.GET('/auth/me', { signal })), staleTime: Infinity });
  if (!me.data) return <main className="signin">{me.error ? <Failure error={me.error} retry={() => void me.refetch()} /> : <span className="muted">Loading…</span>}</main>;
  return (
    <CallerProvider caller={me.data}>
      <LiveProvider>
        <Frame />
      </LiveProvider>
    </CallerProvider>
  );
}

function useNav(): NavGroup[] {
  const may = useMay();
  const alerts = Object.values(useLive().overview?.alerts ?? {}).reduce((a, b) => a + b, 0);
  const item = (operation: Operation, nav: NavItem) => (may(operation) ? [nav] : []);
  return [
    { label: '', items: item('GetOverview', { label: 'Overview', href: '/', icon: 'overview', key: 'o' }) },
    {
      label: 'Fleet',
      items: [
        ...item('ListSites', { label: 'Sites', href: '/sites', icon: 'site', key: 's' }),
        ...item('ListDevices', { label: 'Devices', href: '/devices', icon: 'device', key: 'd' }),
        ...item('ListCampaigns', { label: 'Campaigns', href: '/campaigns', icon: 'campaign', key: 'c' }),
        ...item('ListDeployments', { label: 'Deployments', href: '/deployments', icon: 'deployment', key: 'p' }),
        ...item('ListPolicyPacks', { label: 'Policy packs', href: '/policies', icon: 'policy', key: 'k' }),
      ],
    },
    {
      label: 'Events',
      items: [
        ...item('ListEvents', { label: 'Live events', href: '/events', icon: 'event', key: 'e' }),
        ...item('ListRoutes', { label: 'Routes', href: '/routes', icon: 'route', key: 'r' }),
        ...item('ListDeadLetters', { label: 'Dead letters', href: '/deadletters', icon: 'letter', key: 'l' }),
      ],
    },
    {
      label: 'Operations',
      items: [
        ...item('ListAlerts', { label: 'Alerts', href: '/alerts', icon: 'alert', key: 'a', count: alerts }),
        ...item('ListActivity', { label: 'Activity', href: '/activity', icon: 'activity', key: 'v' }),
        ...item('ListAudit', { label: 'Audit log', href: '/audit', icon: 'audit', key: 'u' }),
        ...item('ListOrgs', { label: 'Orgs', href: '/orgs', icon: 'org', key: 'g' }),
      ],
    },
  ].filter((g) => g.items.length > 0);
}

function Frame() {
  const groups = useNav();
  const { state, silentSince } = useLive();
  return (
    <Shell service={service} guide="edge" groups={groups} live={state} find={find}>
      {silentSince !== undefined && (
        <div className="banners">
          <Silent who="The control plane" at={silentSince}>
            Sites keep running without it: their agents keep what they have to send.
          </Silent>
        </div>
      )}
      <Pages />
    </Shell>
  );
}

function Pages() {
  return (
    <Switch>
      <Route path="/" component={OverviewPage} />
      <Route path="/sites" component={Sites} />
      <Route path="/sites/tokens">
        <Guarded operation="ListEnrollmentTokens">
          <EnrollmentTokens />
        </Guarded>
      </Route>
      <Route path="/sites/:id">{({ id }) => <SiteDetail key={id} id={id} />}</Route>
      <Route path="/devices" component={Devices} />
      <Route path="/devices/:id">{({ id }) => <DeviceDetail key={id} id={id} />}</Route>
      <Route path="/campaigns" component={Campaigns} />
      <Route path="/campaigns/:id">{({ id }) => <CampaignDetail key={id} id={id} />}</Route>
      <Route path="/deployments" component={Deployments} />
      <Route path="/deployments/:id">{({ id }) => <DeploymentDetail key={id} id={id} />}</Route>
      <Route path="/policies" component={Policies} />
      <Route path="/events" component={Events} />
      <Route path="/routes" component={Routes} />
      <Route path="/routes/:id">{({ id }) => <RouteDetail key={id} id={id} />}</Route>
      <Route path="/deadletters" component={DeadLetters} />
      <Route path="/alerts" component={Alerts} />
      <Route path="/activity" component={Activity} />
      <Route path="/audit" component={Audit} />
      <Route path="/orgs">
        <Guarded operation="ListOrgs">
          <Orgs />
        </Guarded>
      </Route>
      <Route>
        <NotHere />
      </Route>
    </Switch>
  );
}

/** A page that only some callers may see. */
function Guarded({ operation, children }: { operation: Operation; children: ReactNode }) {
  return useMay()(operation) ? children : <NotHere />;
}
