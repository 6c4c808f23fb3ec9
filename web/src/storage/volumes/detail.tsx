/** A volume: what it is, its snapshots, its jobs, and all actions on it. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu, type MenuAction } from '../../ui/menu';
import { Notice } from '../../ui/notice';
import { percent } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Tabs } from '../../ui/tabs';
import { DateTime, Time } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { api, pageLimit, type Volume } from '../api';
import { BackupTable } from '../backups/list';
import { EventTable } from '../events';
import { Busy, JobTable } from '../jobs';
import { backendPath, imagePath, useBackends, useClusters, volumePath } from '../links';
import { useLive } from '../live';
import { Health, underWay, VolumeStatus } from '../states';
import { useVolumeActions } from './actions';
import { Used } from './columns';
import { Snapshots } from './snapshots';

const list = { title: 'Volumes', href: '/volumes' };

export function VolumeDetail({ id }: { id: string }) {
  const { actions, snapshot, backup, dialog } = useVolumeActions();
  const jobs = usePages(['jobs', 'of', id], (cursor, signal) => page(api.GET('/jobs', { params: { query: { resource: id, cursor } }, signal })), { refreshSeconds: 3 });
  const query = useQuery({
    queryKey: ['volumes', 'one', id],
    queryFn: ({ signal }) => body(api.GET('/volumes/{id}', { params: { path: { id } }, signal })),
    refetchInterval: 3_000,
  });
  const v = loaded(query);
  if (!v) {
    return (
      <Absent noun="volume" list={list} query={query}>
        It may have been deleted, or belong to another tenant.
      </Absent>
    );
  }
  const job = jobs.rows?.find(underWay);
  const take = snapshot(v);
  return (
    <Page
      title={v.name}
      above={[list]}
      badge={<VolumeStatus volume={v} />}
      lead={`${v.kind === 'block' ? 'Block volume' : 'Volume for files'} of ${bytes(v.size_bytes)}${v.tenant_id ? `, of the tenant ${v.tenant_id}` : ''}`}
      actions={actions(v).length > 0 && <Menu label={`Actions for ${v.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(v)} />}
    >
      <div className="stack">
        {job && <Busy key={job.id} job={job} />}
        {!v.managed && <Notice tone="info">The gateway did not make this volume. It only shows it, and changes nothing of it.</Notice>}
        {v.state === 'missing' && (
          <Notice tone="bad">
            <strong>The backend does not have this volume any more.</strong> If its storage comes back, discover the backend again. If it is lost, delete the volume here.
          </Notice>
        )}
        {v.last_error !== '' && (
          <Notice tone="bad">
            <strong>{failures[v.state] ?? 'Something went wrong the last time.'}</strong> {v.last_error}
          </Notice>
        )}
        <Tabs
          label={`Parts of ${v.name}`}
          inAddress
          tabs={[
            { id: 'overview', label: 'Overview', content: () => <Summary volume={v} /> },
            { id: 'snapshots', label: 'Snapshots', content: () => <Snapshots volume={v} take={take} /> },
            { id: 'backups', label: 'Backups', content: () => <BackupsOf volume={v} make={backup(v)} /> },
            { id: 'events', label: 'Events', content: () => <EventsOf volume={v} /> },
            {
              id: 'jobs',
              label: 'Jobs',
              content: () => (
                <Card flush>
                  <JobTable at="jobs." label={`Jobs of ${v.name}`} pages={jobs} />
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

/** What failed, and what to do next. */
const failures: Partial<Record<Volume['state'], string>> = {
  error: 'It could not be made. Delete it, and create it again.',
  error_expanding: 'It could not be expanded. Expand it again.',
  error_deleting: 'It could not be deleted. Delete it again.',
};

function Summary({ volume: v }: { volume: Volume }) {
  const cluster = useClusters().data?.find((c) => c.id === v.cluster_id);
  const backend = useBackends().data?.find((b) => b.id === cluster?.backend_id);
  const pool = useQuery({ queryKey: ['pools', 'of', v.cluster_id], queryFn: ({ signal }) => body(api.GET('/pools', { params: { query: { cluster: v.cluster_id, limit: pageLimit } }, signal })), enabled: v.cluster_id !== '' }).data?.find((p) => p.id === v.pool_id);
  return (
    <div className="grid">
      <Card title="Content">
        <Facts
          facts={[
            ['Size', bytes(v.size_bytes)],
            ['Used', v.used_bytes === null ? <Used key="u" volume={v} /> : `${bytes(v.used_bytes)}, ${percent(v.used_bytes / v.size_bytes)}`],
            ['Limit', v.size_enforced ? 'the backend does not let it grow beyond its size' : 'its size is not enforced by the backend'],
            ['Health', <Health key="h" condition={v.health} />],
            ['Made of', v.source_snapshot_id ? <Source key="s" id={v.source_snapshot_id} /> : 'nothing: it was made empty'],
          ]}
        />
      </Card>
      <Card title="Place">
        <Facts
          facts={[
            ['Backend', backend ? <Link key="b" href={backendPath(backend)}>{backend.name}</Link> : <span key="b" className="muted">not known</span>],
            ['Pool', pool ? `${pool.name}${pool.missing ? ' (the cluster does not have it any more)' : ''}` : <span key="p" className="muted">not known</span>],
            [
              'Name there',
              !v.backend_native_id ? (
                <span key="n" className="muted">not known yet</span>
              ) : pool?.kind === 'rbd' ? (
                <Link key="n" href={imagePath({ cluster_id: v.cluster_id, pool: pool.name, name: v.backend_native_id })}>
                  <code>{v.backend_native_id}</code>
                </Link>
              ) : (
                <code key="n">{v.backend_native_id}</code>
              ),
            ],
            ['Policy', v.policy || <span key="y" className="muted">none</span>],
          ]}
        />
      </Card>
      <Card title="Life">
        <Facts
          facts={[
            ['Tenant', v.tenant_id || <span key="t" className="muted">none</span>],
            v.owner !== undefined && ['For', [v.owner.product, v.owner.resource_type, v.owner.resource_id, v.owner.role].filter(Boolean).join(' ')],
            ['Made by', v.managed ? 'the gateway' : 'others'],
            ['Schedules', <Link key="s" href={`/schedules?volume=${encodeURIComponent(v.id)}`}>what is done to it at regular times</Link>],
            ['Created', <DateTime key="c" at={v.created_at} />],
            ['Changed', <Time key="u" at={v.updated_at} />],
            v.pvc_name !== '' && ['Claim', `${v.kubernetes_namespace}/${v.pvc_name}`],
            v.storage_class_name !== '' && ['Storage class', v.storage_class_name],
            ['ID', <Copyable key="i" text={v.id} />],
          ]}
        />
      </Card>
    </div>
  );
}

function BackupsOf({ volume: v, make }: { volume: Volume; make: MenuAction | undefined }) {
  const pages = usePages(['backups', 'of', v.id], (cursor, signal) => page(api.GET('/backups', { params: { query: { volume_id: v.id, cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Card
      title="Backups"
      flush
      actions={
        make && (
          <button type="button" className="btn btn-primary" onClick={make.run}>
            Back up
          </button>
        )
      }
    >
      <BackupTable at="backups." label={`Backups of ${v.name}`} pages={pages} left={['tenant']} empty={{ icon: 'clock', title: 'There are no backups', text: 'A backup is a copy of the volume in a bucket. It outlives the volume.' }} />
    </Card>
  );
}

function EventsOf({ volume: v }: { volume: Volume }) {
  const pages = usePages(['events', 'of', v.id], (cursor, signal) => page(api.GET('/volumes/{id}/events', { params: { path: { id: v.id }, query: { cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Card flush>
      <EventTable at="events." label={`Events of ${v.name}`} pages={pages} />
    </Card>
  );
}

/** The snapshot that a volume was made of, and whose it is. Either may be gone. */
function Source({ id }: { id: string }) {
  const { names } = useLive();
  const source = useQuery({ queryKey: ['volumes', 'source', id], queryFn: ({ signal }) => body(api.GET('/snapshots/{id}', { params: { path: { id } }, signal })), retry: false }).data;
  if (!source) return <span className="muted">a snapshot that is gone</span>;
  const name = names.get(source.volume_id);
  return (
    <>
      the snapshot {source.name} of {name ? <Link href={`${volumePath({ id: source.volume_id })}#snapshots`}>{name}</Link> : 'a volume that is gone'}
    </>
  );
}
