/** A backend: its health, what it can do, its pools and OSDs, and how full it was and will be. */
import { useQuery } from '@tanstack/react-query';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Empty, Failure, Notice } from '../../ui/notice';
import { count, percent, plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { DateTime, Time } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { api, type Backend, type Cluster, type Pool } from '../api';
import { ForecastCard } from '../capacity/forecast-card';
import { CapacityHistory } from '../capacity/history';
import { useClusters } from '../links';
import { BackendState, Health } from '../states';
import { useBackendActions } from './actions';
import { abilities } from './capabilities';
import { Fill } from './list';
import { OSDs } from './osds';

const list = { title: 'Backends', href: '/backends' };

export function BackendDetail({ id }: { id: string }) {
  const { actions, discover } = useBackendActions();
  const query = useQuery({ queryKey: ['backends', 'one', id], queryFn: ({ signal }) => body(api.GET('/backends/{id}', { params: { path: { id } }, signal })), refetchInterval: 5_000 });
  const clusters = useClusters();
  const b = loaded(query);
  if (!b) return <Absent noun="backend" list={list} query={query} />;
  const look = discover(b);
  // A backend is one cluster. It has none until it has answered for the first time.
  const cluster = clusters.data?.find((c) => c.backend_id === b.id);
  return (
    <Page
      title={b.name}
      above={[list]}
      badge={<BackendState backend={b} />}
      lead={`${b.backend_type}, ${b.mode.replaceAll('_', ' ')}`}
      actions={
        <>
          {look && (
            <button type="button" className="btn" onClick={look.run}>
              {look.label}
            </button>
          )}
          <Menu label={`Actions for ${b.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(b)} />
        </>
      }
    >
      <div className="stack">
        {b.last_error !== '' && (
          <Notice tone="bad">
            <strong>It does not answer.</strong> {b.last_error}. Check the storage system and the gateway’s settings, and discover it again.
          </Notice>
        )}
        {b.cordoned && <Notice tone="warn">Nothing new is made in it. What it has stays usable.</Notice>}
        {cluster ? (
          <Tabs
            label={`Parts of ${b.name}`}
            inAddress
            tabs={[
              { id: 'overview', label: 'Overview', content: () => <Summary backend={b} cluster={cluster} /> },
              { id: 'pools', label: 'Pools', content: () => <Pools backend={b} /> },
              { id: 'osds', label: 'OSDs', content: () => <OSDs cluster={cluster} /> },
            ]}
          />
        ) : clusters.data ? (
          <Card>
            <Empty
              icon="server"
              title="Nothing is known of it yet"
              action={
                look && (
                  <button type="button" className="btn btn-primary" onClick={look.run}>
                    Discover it now
                  </button>
                )
              }
            >
              It has not answered a discovery yet. The gateway tries once a minute.
            </Empty>
          </Card>
        ) : (
          <p className="muted">Loading…</p>
        )}
      </div>
    </Page>
  );
}

function Summary({ backend: b, cluster }: { backend: Backend; cluster: Cluster }) {
  const path = { params: { path: { id: cluster.id } } };
  const health = useQuery({ queryKey: ['clusters', 'health', cluster.id], queryFn: ({ signal }) => body(api.GET('/clusters/{id}/health', { ...path, signal })), refetchInterval: 10_000 });
  const can = useQuery({ queryKey: ['clusters', 'capabilities', cluster.id], queryFn: ({ signal }) => body(api.GET('/clusters/{id}/capabilities', { ...path, signal })), staleTime: 60_000 }).data;
  const summary = useQuery({ queryKey: ['summary', cluster.id], queryFn: ({ signal }) => body(api.GET('/metrics/summary', { params: { query: { cluster: cluster.id } }, signal })), refetchInterval: 10_000 }).data;
  const forecast = summary?.forecasts.find((f) => f.cluster_id === cluster.id);
  const h = health.data;
  const able = abilities(can ?? b.capabilities);
  return (
    <div className="stack">
      <div className="grid">
        <Card title="Health">
          {health.error && !h ? (
            <Failure error={health.error} retry={() => void health.refetch()} />
          ) : !h ? (
            <span className="skeleton" />
          ) : (
            <Facts
              facts={[
                ['Status', <Health key="h" condition={h.status} />],
                ['Summary', h.summary || <span key="s" className="muted">{h.status === 'unknown' ? 'it does not answer' : 'nothing is wrong'}</span>],
                ['Used', `${bytes(h.used_capacity_bytes)} of ${bytes(h.raw_capacity_bytes)}${h.raw_capacity_bytes > 0 ? `, ${percent(h.used_capacity_bytes / h.raw_capacity_bytes)}` : ''}`],
                ['Free', bytes(h.available_capacity_bytes)],
                ['Recovers', h.recovering ? 'yes, data is being copied to where it should be' : 'no'],
                ['Degraded', `${plural(h.degraded_objects, 'object has', 'objects have')} too few copies`],
                ['Answered', <Time key="t" at={h.seen_at} />],
              ]}
            />
          )}
        </Card>
        <Card title="System">
          <Facts
            facts={[
              ['Can do', able.can.join(', ') || 'nothing'],
              able.cannot.length > 0 && ['Cannot do', able.cannot.join(', ')],
              b.connection_ref !== '' && ['Entry of the settings', <code key="c">{b.connection_ref}</code>],
              ['Identity', <Copyable key="f" text={cluster.native_fsid} />],
              ['Discovered', <Time key="d" at={b.discovered_at} />],
              ['Added', <DateTime key="a" at={b.created_at} />],
              ['ID', <Copyable key="i" text={b.id} />],
            ]}
          />
        </Card>
      </div>
      <CapacityHistory cluster={cluster.id} />
      {forecast && <ForecastCard cluster={cluster} forecast={forecast} />}
    </div>
  );
}

const poolColumns: readonly Column<Pool>[] = [
  { id: 'name', header: 'Pool', cell: (p) => p.name, sort: (p) => p.name },
  { id: 'health', header: 'Health', cell: (p) => (p.missing ? <Status tone="bad">missing</Status> : <Health condition={p.health} />), sort: (p) => (p.missing ? 'missing' : p.health) },
  { id: 'kind', header: 'Kind', cell: (p) => p.kind.replaceAll('_', ' '), sort: (p) => p.kind },
  { id: 'used', header: 'Used', cell: (p) => <Fill clusters={[{ used_capacity_bytes: p.used_bytes, raw_capacity_bytes: p.max_bytes }]} />, sort: (p) => p.used_bytes, text: () => '' },
  { id: 'copies', header: 'Copies', cell: (p) => count(p.replica_size), sort: (p) => p.replica_size, text: () => '', end: true },
  { id: 'class', header: 'Devices', cell: (p) => p.device_class || <span className="muted">not known</span>, sort: (p) => p.device_class },
];

function Pools({ backend: b }: { backend: Backend }) {
  const pages = usePages(['pools', 'list', b.id], (cursor, signal) => page(api.GET('/pools', { params: { query: { backend: b.id, cursor } }, signal })));
  return (
    <Card flush>
      <Table at="pools." label={`Pools of ${b.name}`} noun="pool" columns={poolColumns} pages={pages} rowKey={(p) => p.id} empty={{ icon: 'server', title: 'It has no pools' }} />
    </Card>
  );
}
