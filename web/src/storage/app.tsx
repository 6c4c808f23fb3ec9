/** Sign-in, and the routes to the pages. */
import type { ReactNode } from 'react';
import { Route, Switch } from 'wouter';
import { CallerProvider } from '../ui/access';
import { ConfirmProvider } from '../ui/confirm';
import { Gate } from '../ui/gate';
import { NotHere } from '../ui/not-here';
import { Failure } from '../ui/notice';
import { Page } from '../ui/page';
import { useSession } from '../ui/session';
import { Shell, type NavGroup, type NavItem } from '../ui/shell';
import { Silent } from '../ui/silent';
import { Account } from './account';
import { Alerts } from './alerts';
import { callerOf, session, useMay } from './api';
import { Audit } from './audit';
import { BackendDetail } from './backends/detail';
import { Backends } from './backends/list';
import { BackupDetail } from './backups/detail';
import { Backups } from './backups/list';
import { Restore } from './backups/restore';
import { BucketDetail } from './buckets/detail';
import { Buckets } from './buckets/list';
import { Events } from './events';
import { find } from './find';
import { GroupDetail } from './groups/detail';
import { Groups } from './groups/list';
import { ImageDetail } from './images/detail';
import { Images } from './images/list';
import { JobDetail, Jobs } from './jobs';
import { imageAt, useOpenAlerts } from './links';
import { LiveProvider, useLive } from './live';
import { PausedBanner } from './maintenance';
import { MirrorDetail } from './mirrors/detail';
import { Mirrors } from './mirrors/list';
import { Overview } from './overview';
import { Policies } from './policies';
import { Schedules } from './schedules/list';
import { underWay } from './states';
import { Tenants } from './tenants';
import { Trash } from './trash';
import { VolumeDetail } from './volumes/detail';
import { Volumes } from './volumes/list';

const service = 'Storage gateway';

export function App() {
  return (
    <Gate session={session}>
      <SignedIn />
    </Gate>
  );
}

function SignedIn() {
  const who = useSession(session).info?.who;
  if (!who) return null;
  return (
    <CallerProvider caller={callerOf(who)}>
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
  { label: '', items: [{ label: 'Overview', href: '/', icon: 'overview', key: 'o', operation: 'GetSummary', page: <Overview /> }] },
  {
    label: 'Storage',
    items: [
      { label: 'Volumes', href: '/volumes', icon: 'deployment', key: 'v', operation: 'ListVolumes', page: <Volumes /> },
      { label: 'Images', href: '/images', icon: 'device', key: 'i', operation: 'ListRBDImages', page: <Images /> },
      { label: 'Groups', href: '/groups', icon: 'peers', key: 'r', operation: 'ListVolumeGroups', page: <Groups /> },
      { label: 'Mirrors', href: '/mirrors', icon: 'route', key: 'd', operation: 'ListMirrors', page: <Mirrors /> },
      { label: 'Backups', href: '/backups', icon: 'clock', key: 'k', operation: 'ListBackups', page: <Backups /> },
      { label: 'Buckets', href: '/buckets', icon: 'site', key: 'u', operation: 'ListBuckets', page: <Buckets /> },
      { label: 'Schedules', href: '/schedules', icon: 'refresh', key: 's', operation: 'ListSchedules', page: <Schedules /> },
      { label: 'Trash', href: '/trash', icon: 'trash', key: 'x', operation: 'ListTrash', page: <Trash /> },
      { label: 'Backends', href: '/backends', icon: 'server', key: 'b', operation: 'ListBackends', page: <Backends /> },
      { label: 'Policies', href: '/policies', icon: 'policy', key: 'p', operation: 'ListPolicies', page: <Policies /> },
    ],
  },
  {
    label: 'Operations',
    items: [
      { label: 'Alerts', href: '/alerts', icon: 'alert', key: 'l', operation: 'ListAlerts', page: <Alerts /> },
      { label: 'Jobs', href: '/jobs', icon: 'activity', key: 'j', operation: 'ListJobs', page: <Jobs /> },
      { label: 'Events', href: '/events', icon: 'event', key: 'e', operation: 'ListEvents', page: <Events /> },
    ],
  },
  {
    label: 'Organization',
    items: [
      { label: 'Tenants', href: '/tenants', icon: 'org', key: 't', operation: 'ListTenants', page: <Tenants /> },
      { label: 'Audit log', href: '/audit', icon: 'audit', key: 'a', operation: 'ListAudit', page: <Audit /> },
      { label: 'My account', href: '/account', icon: 'key', key: 'm', operation: 'GetMaintenance', page: <Account /> },
    ],
  },
];

function Frame() {
  const may = useMay();
  const alerts = useOpenAlerts().data?.length;
  const { state, error, jobs, maintenance, readAt, retry } = useLive();
  const groups: NavGroup[] = places.map(({ label, items }) => ({ label, items: items.filter((i) => may(i.operation)).map((i) => (i.href === '/alerts' ? { ...i, count: alerts } : i)) }));
  const busy = jobs?.filter(underWay).length ?? 0;
  const silent = state === 'reconnecting' && jobs !== undefined;
  return (
    <Shell service={service} guide="storage" groups={groups} live={state} find={find}>
      {(silent || maintenance?.paused) && (
        <div className="stack-tight banners">
          {silent && (
            <Silent who="The gateway" at={readAt}>
              Volumes are used without it.
            </Silent>
          )}
          {maintenance?.paused && <PausedBanner maintenance={maintenance} />}
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
      <Route path="/volumes/:id">{({ id }) => <VolumeDetail key={id} id={decodeURIComponent(id)} />}</Route>
      <Route path="/images/:cluster/:pool/:image">{() => <ImageDetail key={location.pathname} {...imageAt(location.pathname)} />}</Route>
      <Route path="/groups/:id">{({ id }) => <GroupDetail key={id} id={decodeURIComponent(id)} />}</Route>
      <Route path="/mirrors/:id">{({ id }) => <MirrorDetail key={id} id={decodeURIComponent(id)} />}</Route>
      <Route path="/backups/:id">{({ id }) => <BackupDetail key={id} id={decodeURIComponent(id)} />}</Route>
      <Route path="/buckets/:id">{({ id }) => <BucketDetail key={id} id={decodeURIComponent(id)} />}</Route>
      {may('RestoreBackup') && (
        <Route path="/restore">
          <Restore />
        </Route>
      )}
      <Route path="/backends/:id">{({ id }) => <BackendDetail key={id} id={decodeURIComponent(id)} />}</Route>
      <Route path="/jobs/:id">{({ id }) => <JobDetail key={id} id={decodeURIComponent(id)} />}</Route>
      <Route>
        <NotHere />
      </Route>
    </Switch>
  );
}
