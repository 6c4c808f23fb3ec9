/** Sign-in, and the routes to the pages. */
import { useQuery } from '@tanstack/react-query';
import { Suspense, type ReactNode } from 'react';
import { Route, Switch } from 'wouter';
import { CallerProvider } from '../ui/access';
import { body } from '../ui/client';
import { ConfirmProvider } from '../ui/confirm';
import { Gate } from '../ui/gate';
import { NotHere } from '../ui/not-here';
import { Failure } from '../ui/notice';
import { Page } from '../ui/page';
import { Shell, type NavGroup, type NavItem } from '../ui/shell';
import { Silent } from '../ui/silent';
import { Account } from './account';
import { api, callerOf, session, useMay } from './api';
import { Audit } from './audit';
import { BackupFiles } from './backups/files';
import { Backups } from './backups/page';
import { Billing } from './billing';
import { Compliance } from './compliance';
import { find } from './find';
import { ImageDetail } from './images/detail';
import { Images } from './images/page';
import { Jobs } from './jobs';
import { LiveProvider, useLive } from './live';
import { Network } from './network/page';
import { Overview } from './overview';
import { underWay } from './states';
import { Tenants } from './tenants';
import { Users } from './users';
import { CreateVM } from './vms/create';
import { VMDetail } from './vms/detail';
import { VMs } from './vms/list';
import { Webhooks } from './webhooks';

const service = 'VM management';

export function App() {
  return (
    <Gate session={session}>
      <SignedIn />
    </Gate>
  );
}

function SignedIn() {
  const me = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => body(api.GET('/api/auth/me', { signal })), staleTime: Infinity });
  if (!me.data) return <main className="signin">{me.error ? <Failure error={me.error} retry={() => void me.refetch()} /> : <span className="muted">Loading…</span>}</main>;
  return (
    <CallerProvider caller={callerOf(me.data)}>
      <LiveProvider>
        <ConfirmProvider>
          <Frame />
        </ConfirmProvider>
      </LiveProvider>
    </CallerProvider>
  );
}

type Operation = Parameters<ReturnType<typeof useMay>>[0];

/** A page, for those who may call the operation that fills it. */
interface Place extends NavItem {
  operation: Operation;
  page: ReactNode;
}

const places: readonly { label: string; items: readonly Place[] }[] = [
  { label: '', items: [{ label: 'Overview', href: '/', icon: 'overview', key: 'o', operation: 'ListVMs', page: <Overview /> }] },
  {
    label: 'Machines',
    items: [
      { label: 'VMs', href: '/vms', icon: 'node', key: 'v', operation: 'ListVMs', page: <VMs /> },
      { label: 'Images', href: '/images', icon: 'server', key: 'd', operation: 'ListImages', page: <Images /> },
      { label: 'Backups', href: '/backups', icon: 'deployment', key: 'b', operation: 'ListBackups', page: <Backups /> },
      { label: 'Network', href: '/network', icon: 'route', key: 'n', operation: 'GetDataplaneHealth', page: <Network /> },
      { label: 'Compliance', href: '/compliance', icon: 'policy', key: 'c', operation: 'ListComplianceResults', page: <Compliance /> },
      { label: 'Jobs', href: '/jobs', icon: 'activity', key: 'j', operation: 'ListJobs', page: <Jobs /> },
    ],
  },
  {
    label: 'Organization',
    items: [
      { label: 'Tenants', href: '/tenants', icon: 'org', key: 't', operation: 'ListTenants', page: <Tenants /> },
      { label: 'Users', href: '/users', icon: 'device', key: 's', operation: 'ListUsers', page: <Users /> },
      { label: 'Billing', href: '/billing', icon: 'balance', key: 'i', operation: 'ListUsage', page: <Billing /> },
      { label: 'Webhooks', href: '/webhooks', icon: 'event', key: 'w', operation: 'ListWebhooks', page: <Webhooks /> },
      { label: 'Audit log', href: '/audit', icon: 'audit', key: 'a', operation: 'ListAudit', page: <Audit /> },
      { label: 'My account', href: '/account', icon: 'key', key: 'm', operation: 'GetMe', page: <Account /> },
    ],
  },
];

function Frame() {
  const may = useMay();
  const { state, error, jobs, readAt, retry } = useLive();
  const groups: NavGroup[] = places.map(({ label, items }) => ({ label, items: items.filter((i) => may(i.operation)) }));
  const busy = jobs?.filter(underWay).length ?? 0;
  return (
    <Shell service={service} guide="vm" groups={groups} live={state} find={find}>
      {state === 'reconnecting' && jobs && (
        <div className="stack-tight banners">
          <Silent who="VM management" at={readAt}>
            VMs keep running without it.
          </Silent>
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
        {busy > 0 ? `${busy} jobs under way` : ''}
      </span>
    </Shell>
  );
}

function Pages() {
  const may = useMay();
  return (
    <Suspense fallback={<p className="muted">Loading…</p>}>
      <Switch>
        {places.flatMap(({ items }) =>
          items
            .filter((i) => may(i.operation))
            .map((i) => (
              <Route key={i.href} path={i.href}>
                {i.page}
              </Route>
            )),
        )}
        {may('CreateVM') && (
          <Route path="/new-vm">
            <CreateVM />
          </Route>
        )}
        <Route path="/vms/:name">{({ name }) => <VMDetail key={name} name={decodeURIComponent(name)} />}</Route>
        {may('OpenBackupVolumes') && <Route path="/backups/:id/files">{({ id }) => <BackupFiles key={id} id={decodeURIComponent(id)} />}</Route>}
        {may('GetImage') && <Route path="/images/:id">{({ id }) => <ImageDetail key={id} id={decodeURIComponent(id)} />}</Route>}
        <Route>
          <NotHere />
        </Route>
      </Switch>
    </Suspense>
  );
}
