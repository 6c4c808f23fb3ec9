/** An image: what it is, what limits it, the tree of its snapshots and clones, and its jobs. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Notice } from '../../ui/notice';
import { count, percent } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Tabs } from '../../ui/tabs';
import { DateTime } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { api, type RBDImage } from '../api';
import { Busy, JobTable } from '../jobs';
import { backendPath, imagePath, useBackends, useClusters, volumePath } from '../links';
import { Health, underWay, VolumeStatus } from '../states';
import { Used } from '../volumes/columns';
import { useImageActions } from './actions';
import { imageOf } from './find';
import { parentOf } from './parent';
import { ImageSnapshots } from './snapshots';

const list = { title: 'Images', href: '/images' };

export function ImageDetail({ cluster, pool, name }: { cluster: string; pool: string; name: string }) {
  const { actions, snapshot, dialog } = useImageActions();
  const query = useQuery({ queryKey: ['images', 'one', cluster, pool, name], queryFn: ({ signal }) => imageOf({ cluster, pool, name }, signal), refetchInterval: 3_000, retry: false });
  const i = loaded(query);
  const jobs = usePages(['jobs', 'of', i?.id], (cursor, signal) => page(api.GET('/jobs', { params: { query: { resource: i?.id ?? '', cursor } }, signal })), { refreshSeconds: 3, enabled: i !== undefined });
  // Why the last job failed is known of the volume that the image is.
  const volume = useQuery({ queryKey: ['volumes', 'one', i?.id], queryFn: ({ signal }) => body(api.GET('/volumes/{id}', { params: { path: { id: i?.id ?? '' } }, signal })), refetchInterval: 3_000, enabled: i !== undefined }).data;
  if (!i) {
    return (
      <Absent noun="image" list={list} query={query}>
        It may have been moved or deleted, or belong to another tenant.
      </Absent>
    );
  }
  const job = jobs.rows?.find(underWay);
  return (
    <Page
      title={i.name}
      above={[list]}
      badge={<VolumeStatus volume={i} />}
      lead={`Image of ${bytes(i.size_bytes)} in the pool ${i.pool}${i.tenant_id ? `, of the tenant ${i.tenant_id}` : ''}`}
      actions={<Menu label={`Actions for ${i.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(i)} />}
    >
      <div className="stack">
        {job && <Busy key={job.id} job={job} />}
        {!i.managed && <Notice tone="info">The gateway did not make this image. It only shows it, and changes nothing of it.</Notice>}
        {i.state === 'missing' && <Notice tone="bad">The cluster does not have this image any more. If it was being moved, move it again. If it is lost, delete it here.</Notice>}
        {volume && volume.last_error !== '' && (
          <Notice tone="bad">
            <strong>Something went wrong the last time.</strong> {volume.last_error}
          </Notice>
        )}
        <Tabs
          label={`Parts of ${i.name}`}
          inAddress
          tabs={[
            { id: 'overview', label: 'Overview', content: () => <Summary image={i} /> },
            { id: 'snapshots', label: 'Snapshots', content: () => <ImageSnapshots image={i} take={snapshot(i)} /> },
            {
              id: 'jobs',
              label: 'Jobs',
              content: () => (
                <Card flush>
                  <JobTable at="jobs." label={`Jobs of ${i.name}`} pages={jobs} />
                </Card>
              ),
            },
          ]}
        />
      </div>
      {dialog}
    </Page>
  );
}

function Summary({ image: i }: { image: RBDImage }) {
  const cluster = useClusters().data?.find((c) => c.id === i.cluster_id);
  const backend = useBackends().data?.find((b) => b.id === cluster?.backend_id);
  const parent = parentOf(i.parent);
  return (
    <div className="grid">
      <Card title="Content">
        <Facts
          facts={[
            ['Size', bytes(i.size_bytes)],
            ['Used', i.used_bytes === null ? <Used key="u" volume={i} /> : `${bytes(i.used_bytes)}, ${percent(i.used_bytes / i.size_bytes)}; without snapshots and parent`],
            ['Health', <Health key="h" condition={i.health} />],
            ['Depends on', parent ? <>the snapshot {parent.snapshot} of <Link href={`${imagePath({ cluster_id: i.cluster_id, pool: parent.pool, name: parent.image })}#snapshots`}>{parent.image}</Link></> : 'no other image'],
          ]}
        />
      </Card>
      <Card title="Limits">
        <Facts
          facts={[
            ['Requests per second', i.iops > 0 ? count(i.iops) : 'no limit'],
            ['Bytes per second', i.bps > 0 ? bytes(i.bps) : 'no limit'],
          ]}
        />
      </Card>
      <Card title="Life">
        <Facts
          facts={[
            ['Backend', backend ? <Link key="b" href={backendPath(backend)}>{backend.name}</Link> : <span key="b" className="muted">not known</span>],
            ['Pool', i.pool],
            ['Tenant', i.tenant_id || <span key="t" className="muted">none</span>],
            ['Made by', i.managed ? 'the gateway' : 'others'],
            ['Created', <DateTime key="c" at={i.created_at} />],
            ['Volume', <Link key="v" href={volumePath(i)}>backups and more of the volume that it is</Link>],
            ['ID', <Copyable key="i" text={i.id} />],
          ]}
        />
      </Card>
    </div>
  );
}
