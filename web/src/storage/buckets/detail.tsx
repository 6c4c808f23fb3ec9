/** A bucket: where it is, what it holds against its limits, its lifecycle rules, its objects, backups and jobs. Its keys are never shown. */
import { useQuery } from '@tanstack/react-query';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Failure, Notice } from '../../ui/notice';
import { count, plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages, wholeList } from '../../ui/paging';
import { Limits } from '../../ui/progress';
import { bytes } from '../../ui/size';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { DateTime } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { api, type Bucket, type BucketRule, type BucketStats } from '../api';
import { BackupTable } from '../backups/list';
import { Busy, JobTable } from '../jobs';
import { BucketStatus, underWay } from '../states';
import { useBucketActions } from './actions';
import { Objects } from './objects';

const list = { title: 'Buckets', href: '/buckets' };

export function BucketDetail({ id }: { id: string }) {
  const actions = useBucketActions();
  const query = useQuery({ queryKey: ['buckets', 'one', id], queryFn: ({ signal }) => body(api.GET('/buckets/{id}', { params: { path: { id } }, signal })), refetchInterval: 3_000 });
  const jobs = usePages(['jobs', 'of', id], (cursor, signal) => page(api.GET('/jobs', { params: { query: { resource: id, cursor } }, signal })), { refreshSeconds: 3 });
  const b = loaded(query);
  if (!b) {
    return (
      <Absent noun="bucket" list={list} query={query}>
        It may have been deleted, or belong to another tenant.
      </Absent>
    );
  }
  const job = jobs.rows?.find(underWay);
  return (
    <Page
      title={b.name}
      above={[list]}
      badge={<BucketStatus bucket={b} />}
      lead={`${b.adopted ? 'Bucket that others made' : 'Bucket'}${b.tenant_id ? `, of the tenant ${b.tenant_id}` : ''}`}
      actions={<Menu label={`Actions for ${b.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(b)} />}
    >
      <div className="stack">
        {job && <Busy key={job.id} job={job} />}
        {b.last_error !== '' && (
          <Notice tone="bad">
            <strong>{b.state === 'error' ? 'It cannot be used. Delete it again, or create it again.' : 'Something went wrong the last time.'}</strong> {b.last_error}
          </Notice>
        )}
        <Tabs
          label={`Parts of ${b.name}`}
          inAddress
          tabs={[
            { id: 'overview', label: 'Overview', content: () => <Summary bucket={b} /> },
            { id: 'objects', label: 'Objects', content: () => <Objects bucket={b} /> },
            { id: 'backups', label: 'Backups', content: () => <BackupsIn bucket={b} /> },
            {
              id: 'jobs',
              label: 'Jobs',
              content: () => (
                <Card flush>
                  <JobTable at="jobs." label={`Jobs of ${b.name}`} pages={jobs} />
                </Card>
              ),
            },
          ]}
        />
      </div>
    </Page>
  );
}

const days = (n: number) => (n === 0 ? <span className="muted">never</span> : `after ${plural(n, 'day')}`);

const ruleColumns: readonly Column<BucketRule>[] = [
  { id: 'id', header: 'Rule', cell: (r) => r.id || 'without a name' },
  { id: 'prefix', header: 'Applies to', cell: (r) => (r.prefix ? <code>{r.prefix}</code> : 'all objects') },
  { id: 'enabled', header: 'Enabled', cell: (r) => (r.enabled ? 'yes' : 'no') },
  { id: 'expire', header: 'Removes objects', cell: (r) => days(r.expire_days) },
  { id: 'noncurrent', header: 'What was overwritten', cell: (r) => days(r.expire_noncurrent_days) },
  { id: 'abort', header: 'Unfinished uploads', cell: (r) => days(r.abort_upload_days) },
];

function Summary({ bucket: b }: { bucket: Bucket }) {
  const stats = useQuery({
    queryKey: ['buckets', 'stats', b.id],
    queryFn: ({ signal }) => body(api.GET('/buckets/{id}/stats', { params: { path: { id: b.id } }, signal })),
    refetchInterval: 15_000,
    enabled: b.state === 'bound',
  });
  const s = stats.data;
  return (
    <div className="stack">
      <div className="grid">
        <Card title="Use">
          {b.state !== 'bound' ? (
            <p className="muted">What it holds is not known: the bucket is {b.state}.</p>
          ) : stats.error ? (
            <Failure error={stats.error} retry={() => void stats.refetch()} />
          ) : !s ? (
            <span className="skeleton" />
          ) : (
            <Use stats={s} />
          )}
        </Card>
        <Card title="Place">
          <Facts
            facts={[
              ['Endpoint', b.endpoint ? <Copyable key="e" text={b.endpoint} /> : <span key="e" className="muted">not known yet</span>],
              ['Name there', b.bucket_name ? <Copyable key="n" text={b.bucket_name} /> : <span key="n" className="muted">not known yet</span>],
              ['Region', b.region || <span key="r" className="muted">none</span>],
              ['Secret', b.secret_ref ? <code key="s">{b.secret_ref}</code> : <span key="s" className="muted">none yet</span>],
              ['Keys', 'never shown here: mainstay storage bucket keys prints them on the gateway’s host'],
            ]}
          />
        </Card>
        <Card title="Life">
          <Facts
            facts={[
              ['Versioning', s?.available ? s.versioning : <span key="v" className="muted">not known</span>],
              ['Made by', b.adopted ? 'others: the gateway took it in, and does not remove it' : 'the gateway'],
              ['Tenant', b.tenant_id || <span key="t" className="muted">none</span>],
              ['Created', <DateTime key="c" at={b.created_at} />],
              ['ID', <Copyable key="i" text={b.id} />],
            ]}
          />
        </Card>
      </div>
      {s?.available && (
        <Card title="Lifecycle rules" flush>
          <Table brief label={`Lifecycle rules of ${b.name}`} noun="rule" columns={ruleColumns} pages={wholeList([...s.lifecycle])} rowKey={(r) => `${r.id} ${r.prefix}`} empty={{ icon: 'clock', title: b.adopted ? 'No rule is known' : 'There are no rules', text: b.adopted ? 'Rules that the keys of the bucket may not read are not shown.' : 'Its objects stay until somebody removes them.' }} />
        </Card>
      )}
    </div>
  );
}

/** What a bucket holds. The numbers of one that does not answer are nothing. */
function Use({ stats: s }: { stats: BucketStats }) {
  if (!s.available) return <Notice tone="warn">What it holds is not known: {s.reason}.</Notice>;
  return (
    <Limits
      of={[
        { label: 'Size', limit: s.quota.max_size || undefined, value: s.size_bytes, text: bytes },
        { label: 'Objects', limit: s.quota.max_objects || undefined, value: s.num_objects, text: count },
      ]}
    />
  );
}

function BackupsIn({ bucket: b }: { bucket: Bucket }) {
  const pages = usePages(['backups', 'in', b.id], (cursor, signal) => page(api.GET('/backups', { params: { query: { bucket_id: b.id, cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Card flush>
      <BackupTable at="backups." label={`Backups in ${b.name}`} pages={pages} left={['bucket']} empty={{ icon: 'clock', title: 'It has no backups', text: 'A backup is made from the page of its volume, or by a schedule.' }} />
    </Card>
  );
}
