/** How full the storage is and how it does, what needs attention, and what is under way. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { useCaller } from '../ui/access';
import { body } from '../ui/client';
import { Card, Facts, Tile } from '../ui/facts';
import { Empty, Failure } from '../ui/notice';
import { count, percent, plural } from '../ui/number';
import { Page } from '../ui/page';
import { bytes } from '../ui/size';
import { Time } from '../ui/time';
import { Allowed, api, pageLimit, type Cluster, type Forecast, type VolumeState } from './api';
import { forecastFacts } from './capacity/forecast-card';
import { CapacityHistory } from './capacity/history';
import { JobList } from './jobs';
import { backendPath, subjectPath, useBackends, useClusters, useOpenAlerts } from './links';
import { useLive } from './live';
import { MaintenanceCard } from './maintenance';
import { Health, SeverityBadge, troubled, underWay, volumeText, worst } from './states';
import { TenantUse } from './tenants';

/** How many alerts and jobs are shown here. */
const shown = 6;

const useSummary = () => useQuery({ queryKey: ['summary'], queryFn: ({ signal }) => body(api.GET('/metrics/summary', { signal })), refetchInterval: 10_000 });

/** How many volumes somebody must look at, by their state. */
const useTrouble = () =>
  useQuery({
    queryKey: ['volumes', 'troubled'],
    queryFn: async ({ signal }) =>
      Promise.all(troubled.map(async (state): Promise<[VolumeState, number]> => [state, (await body(api.GET('/volumes', { params: { query: { state, limit: pageLimit } }, signal }))).length])),
    refetchInterval: 15_000,
  });

export function Overview() {
  const { jobs, maintenance } = useLive();
  const own = useCaller().org_id;
  const summary = useSummary();
  const alerts = useOpenAlerts();
  const clusters = useClusters();
  const trouble = useTrouble();
  const waiting = <span className="skeleton" />;
  const busy = jobs?.filter(underWay) ?? [];
  const bad = trouble.data?.filter(([, n]) => n > 0);
  const critical = alerts.data?.filter((a) => a.severity === 'critical').length ?? 0;
  const condition = clusters.data && worst(clusters.data.map((c) => c.health));
  const s = summary.data;
  return (
    <Page title="Overview" lead="How full the storage is, and what is done with it.">
      <div className="stack">
        {summary.error && !s && <Failure error={summary.error} retry={() => void summary.refetch()} />}
        <div className="tiles">
          <Tile
            href="/backends"
            label="Capacity used"
            value={s ? (s.raw_capacity_bytes > 0 ? percent(s.used_capacity_bytes / s.raw_capacity_bytes) : 'not known') : waiting}
            {...(s && s.raw_capacity_bytes > 0 && { note: `${bytes(s.used_capacity_bytes)} of ${bytes(s.raw_capacity_bytes)}` })}
          />
          <Tile href="/backends" label="Worst health" value={clusters.data ? (condition ?? 'not known') : waiting} note={s ? plural(s.clusters, 'cluster') : ''} bad={condition === 'error'} />
          <Tile href="/volumes" label="Volumes" value={s ? count(s.volumes) : waiting} note={s ? `in ${plural(s.pools, 'pool')}` : ''} />
          <Tile
            href={bad?.[0] ? `/volumes?state=${bad[0][0]}` : '/volumes'}
            label="Need attention"
            value={bad ? count(bad.reduce((sum, [, n]) => sum + n, 0)) : waiting}
            note={bad ? bad.map(([state, n]) => `${count(n)} ${volumeText(state)}`).join(', ') || 'no volume' : ''}
            bad={(bad?.length ?? 0) > 0}
          />
          <Tile href="/alerts" label="Open alerts" value={alerts.data ? count(alerts.data.length) : waiting} note={critical > 0 ? `${count(critical)} critical` : 'none critical'} bad={critical > 0} />
          <Tile href="/jobs" label="Jobs" value={jobs ? count(busy.length) : waiting} note="under way" />
        </div>
        {alerts.data && alerts.data.length > 0 && (
          <Card title="Open alerts" actions={<Link href="/alerts">All alerts</Link>} flush>
            <ul className="log">
              {alerts.data.slice(0, shown).map((a) => (
                <li key={a.id}>
                  <Time at={a.created_at} />
                  <SeverityBadge severity={a.severity} />
                  <Link href={subjectPath(a, clusters.data ?? [])} className="quiet">
                    {a.description || a.title}
                  </Link>
                </li>
              ))}
            </ul>
          </Card>
        )}
        {busy.length > 0 && (
          <Card title="Under way" actions={<Link href="/jobs">All jobs</Link>} flush>
            <JobList label="Jobs under way" jobs={busy.slice(0, shown)} />
          </Card>
        )}
        {s?.volumes === 0 && (
          <Card>
            <Empty
              icon="deployment"
              title="There are no volumes yet"
              action={
                <Allowed operation="CreateVolume">
                  <Link href="/volumes?create=1" className="btn btn-primary">
                    Create the first one
                  </Link>
                </Allowed>
              }
            >
              A volume is made by a policy, which says where it is and of which kind.
            </Empty>
          </Card>
        )}
        <CapacityHistory />
        <div className="grid">
          {s && clusters.data && <Clusters clusters={clusters.data} forecasts={s.forecasts} />}
          {own !== '' && <OwnTenant name={own} />}
          {maintenance && <MaintenanceCard maintenance={maintenance} />}
        </div>
      </div>
    </Page>
  );
}

function Clusters({ clusters, forecasts }: { clusters: readonly Cluster[]; forecasts: readonly Forecast[] }) {
  const backends = useBackends().data;
  return (
    <Card title="Clusters" actions={<Link href="/backends">All backends</Link>}>
      <div className="stack">
        {clusters.length === 0 && <p className="muted">No backend was discovered yet.</p>}
        {clusters.map((c) => {
          const forecast = forecasts.find((f) => f.cluster_id === c.id);
          return (
            <div key={c.id} className="stack-tight">
              <span className="row spread">
                <Link href={backendPath({ id: c.backend_id })}>
                  <b>{backends?.find((b) => b.id === c.backend_id)?.name ?? c.name}</b>
                </Link>
                <Health condition={c.health} />
              </span>
              <Facts facts={[['Used', `${bytes(c.used_capacity_bytes)} of ${bytes(c.raw_capacity_bytes)}`], ...(forecast ? forecastFacts(forecast) : [])]} />
            </div>
          );
        })}
      </div>
    </Card>
  );
}

function OwnTenant({ name }: { name: string }) {
  const tenant = useQuery({ queryKey: ['tenants', 'one', name], queryFn: ({ signal }) => body(api.GET('/tenants/{name}', { params: { path: { name } }, signal })), refetchInterval: 10_000, retry: false }).data;
  if (!tenant) return null;
  return (
    <Card title={`Quota of ${tenant.name}`}>
      <TenantUse tenant={tenant} />
    </Card>
  );
}
