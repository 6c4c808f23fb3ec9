/** Sign-in, and the routes to the pages. */
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Route, Switch } from 'wouter';
import { CallerProvider } from '../ui/access';
import { body } from '../ui/client';
import { ConfirmProvider } from '../ui/confirm';
import { Gate } from '../ui/gate';
import { NotHere } from '../ui/not-here';
import { Failure, Notice } from '../ui/notice';
import { Page } from '../ui/page';
import { Shell, type NavGroup } from '../ui/shell';
import { Silent } from '../ui/silent';
import { api, callerOf, session, useMay, type Me } from './api';
import { Audit } from './audit';
import { Fleet } from './fleet';
import { find } from './find';
import { Images } from './images/list';
import { LiveProvider, useLive } from './live';
import { Operations } from './operations';
import { Overview } from './overview';
import { underWay } from './states';
import { Templates } from './templates/list';
import { VMDetail } from './vms/detail';
import { VMs } from './vms/list';

const service = 'Hypervisor';

export function App() {
  return (
    <Gate session={session}>
      <SignedIn />
    </Gate>
  );
}

function SignedIn() {
  const me = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => body(api.GET('/v1/me', { signal })), staleTime: Infinity });
  if (!me.data) return <main className="signin">{me.error ? <Failure error={me.error} retry={() => void me.refetch()} /> : <span className="muted">Loading…</span>}</main>;
  return (
    <CallerProvider caller={callerOf(me.data)}>
      <LiveProvider>
        <ConfirmProvider>
          <Frame me={me.data} />
        </ConfirmProvider>
      </LiveProvider>
    </CallerProvider>
  );
}

function useNav(): NavGroup[] {
  const admin = useMay()('ListAudit');
  return [
    { label: '', items: [{ label: 'Overview', href: '/', icon: 'overview', key: 'o' }] },
    {
      label: 'Machines',
      items: [
        { label: 'VMs', href: '/vms', icon: 'node', key: 'v' },
        { label: 'Images', href: '/images', icon: 'deployment', key: 'i' },
        { label: 'Templates', href: '/templates', icon: 'event', key: 't' },
        { label: 'Operations', href: '/operations', icon: 'activity', key: 'p' },
      ],
    },
    {
      label: 'Hosts',
      items: [{ label: 'Fleet', href: '/fleet', icon: 'server', key: 'f' }, ...(admin ? [{ label: 'Audit log', href: '/audit', icon: 'audit' as const, key: 'u' }] : [])],
    },
  ];
}

function Frame({ me }: { me: Me }) {
  const groups = useNav();
  const { state, error, host, operations, readAt, retry } = useLive();
  return (
    <Shell service={service} guide="hypervisor" groups={groups} live={state} find={find}>
      {(me.insecure || (state === 'reconnecting' && host)) && (
        <div className="stack-tight banners">
          {me.insecure && (
            <Notice tone="bad">
              <strong>Everybody who reaches this daemon is an admin.</strong> It listens beyond this machine and has no credentials. Set <code>HYPERVISOR_TOKEN</code> and restart it without{' '}
              <code>--insecure</code>.
            </Notice>
          )}
          {state === 'reconnecting' && host && (
            <Silent who="The daemon" at={readAt}>
              VMs keep running without it.
            </Silent>
          )}
        </div>
      )}
      {error === undefined ? (
        <Pages />
      ) : (
        <Page title={service}>
          <Failure error={error} retry={retry} />
        </Page>
      )}
      <span className="visually-hidden" role="status">
        {operations?.some(underWay) ? `${operations.filter(underWay).length} operations under way` : ''}
      </span>
    </Shell>
  );
}

function Pages() {
  return (
    <Switch>
      <Route path="/" component={Overview} />
      <Route path="/vms" component={VMs} />
      <Route path="/vms/:id">{({ id }) => <VMDetail key={id} id={id} />}</Route>
      <Route path="/images" component={Images} />
      <Route path="/templates" component={Templates} />
      <Route path="/operations" component={Operations} />
      <Route path="/fleet" component={Fleet} />
      <Route path="/audit">
        <AdminsOnly>
          <Audit />
        </AdminsOnly>
      </Route>
      <Route>
        <NotHere />
      </Route>
    </Switch>
  );
}

/** Only admins can see the audit log. For others, its page does not exist. */
function AdminsOnly({ children }: { children: ReactNode }) {
  return useMay()('ListAudit') ? children : <NotHere />;
}
