/** What there is, what is under way, and what is left of the quota. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { useCaller } from '../ui/access';
import { body } from '../ui/client';
import { Card, Tile } from '../ui/facts';
import { Empty } from '../ui/notice';
import { count, plural } from '../ui/number';
import { Page } from '../ui/page';
import { Limits } from '../ui/progress';
import { bytes, mib } from '../ui/size';
import { Allowed, api, type State, type Tenant } from './api';
import { JobList } from './jobs';
import { useLive } from './live';
import { underWay } from './states';

/** How many VMs are in a state, or in any. */
function useCount(state?: State): number | undefined {
  return useQuery({
    queryKey: ['vms', 'count', state],
    queryFn: async ({ signal }) => (await body(api.GET('/api/vms', { params: { query: { limit: 1, ...(state && { state }) } }, signal }))).total,
    refetchInterval: 5_000,
  }).data;
}

export function Overview() {
  const { jobs } = useLive();
  const [all, running, failed, missing] = [useCount(), useCount('running'), useCount('failed'), useCount('missing')];
  const stats = useQuery({ queryKey: ['backups', 'stats'], queryFn: ({ signal }) => body(api.GET('/api/backups/stats', { signal })), refetchInterval: 15_000 }).data;
  const waiting = <span className="skeleton" />;
  const busy = jobs?.filter(underWay) ?? [];
  const bad = (failed ?? 0) + (missing ?? 0);
  return (
    <Page title="Overview" lead="Virtual machines, and what is done with them.">
      <div className="stack">
        <div className="tiles">
          <Tile href="/vms" label="VMs" value={all === undefined ? waiting : count(all)} note={running === undefined ? '' : `${count(running)} running`} />
          <Tile href={failed ? '/vms?state=failed' : missing ? '/vms?state=missing' : '/vms'} label="Need attention" value={failed === undefined || missing === undefined ? waiting : count(bad)} note={bad ? `${count(failed ?? 0)} failed, ${count(missing ?? 0)} missing` : 'none failed, none missing'} bad={bad > 0} />
          <Tile href="/jobs" label="Jobs" value={jobs ? count(busy.length) : waiting} note="under way" />
          <Tile href="/backups" label="Backups" value={stats ? count(stats.total_backups) : waiting} {...(stats && { note: bytes(stats.total_size_bytes) })} />
        </div>
        {all === 0 && (
          <Card>
            <Empty
              icon="node"
              title="There are no VMs yet"
              action={
                <Allowed operation="CreateVM">
                  <Link href="/new-vm" className="btn btn-primary">
                    Create the first one
                  </Link>
                </Allowed>
              }
            >
              A VM needs an image of the hypervisor’s catalog. On a machine to try things on, <code>mainstay image build-demo</code> makes one called demo.
            </Empty>
          </Card>
        )}
        <Quotas />
        {busy.length > 0 && (
          <Card title="Under way" actions={<Link href="/jobs">All jobs</Link>} flush>
            <JobList label="Jobs under way" jobs={busy} />
          </Card>
        )}
      </div>
    </Page>
  );
}

/** What a tenant has used of its limits. Without a limit there is no bar. */
export function QuotaUse({ tenant: { quota, used } }: { tenant: Tenant }) {
  return (
    <Limits
      of={[
        { label: 'VMs', limit: quota.vms, value: used.vms, text: count },
        { label: 'Processors', limit: quota.cpus, value: used.cpus, text: count },
        { label: 'Memory', limit: quota.memory, value: used.memory, text: mib },
        { label: 'Disk', limit: quota.disk, value: used.disk, text: (n: number) => `${count(n)} GiB` },
        { label: 'Snapshots', limit: quota.snapshots, value: used.snapshots, text: count },
        { label: 'Backups', limit: quota.backup_bytes, value: used.backup_bytes, text: bytes },
      ]}
    />
  );
}

function Quotas() {
  const own = useCaller().org_id;
  const tenant = useQuery({ queryKey: ['tenants', 'one', own], queryFn: ({ signal }) => body(api.GET('/api/tenants/{name}', { params: { path: { name: own } }, signal })), enabled: own !== '', refetchInterval: 10_000 }).data;
  if (!tenant) return null;
  return (
    <Card title={`Quota of ${tenant.name}`}>
      <div className="stack">
        <span className="muted small">{plural(tenant.used.users, 'user')}</span>
        <QuotaUse tenant={tenant} />
      </div>
    </Card>
  );
}
