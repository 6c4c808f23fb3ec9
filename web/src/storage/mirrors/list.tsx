/** Mirrors: which volumes have copies at other sites, how old those are, and whether a failover would work. */
import { useQuery } from '@tanstack/react-query';
import { useDeferredValue } from 'react';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { usePages, wholeList } from '../../ui/paging';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { Status, type Tone } from '../../ui/status';
import { Choice, Table, type Column } from '../../ui/table';
import { duration, Time } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, pageLimit, schemas, useMay, useSeesAll, type Mirror, type MirrorMode, type Peer, type PeerSpec } from '../api';
import { groupable } from '../groups/list';
import { mirrorPath, useBackendNames, useBackends, useClusters } from '../links';
import { useRefresh } from '../live';
import { MirrorStatus } from '../states';
import { useMirrorActions } from './actions';

/** How old a copy is, against how old it may be. */
export function CopyAge({ mirror: m }: { mirror: Pick<Mirror, 'lag_seconds' | 'rpo_seconds'> }) {
  if (m.lag_seconds === null) return <span className="muted">not known</span>;
  const late = m.rpo_seconds > 0 && m.lag_seconds > m.rpo_seconds;
  return (
    <span className={late ? 'bad' : undefined}>
      {duration(m.lag_seconds)}
      {m.rpo_seconds > 0 && <span className="muted"> of {duration(m.rpo_seconds)}</span>}
    </span>
  );
}

/** What the site of a mirror is called. */
export function useSite(): (cluster: string) => string {
  const backend = useBackendNames();
  return (cluster) => backend(cluster) ?? 'a site that is not known';
}

const columnsWith = (site: (cluster: string) => string): readonly Column<Mirror>[] => [
  { id: 'image', header: 'Volume', cell: (m) => `${m.pool}/${m.image}`, sort: (m) => m.image },
  { id: 'site', header: 'Site', cell: (m) => site(m.cluster_id), sort: (m) => site(m.cluster_id) },
  { id: 'role', header: 'Role', cell: (m) => m.role, sort: (m) => m.role },
  { id: 'state', header: 'State', cell: (m) => <MirrorStatus mirror={m} />, sort: (m) => m.state, text: (m) => m.state },
  { id: 'age', header: 'Age of the copy', cell: (m) => <CopyAge mirror={m} />, sort: (m) => m.lag_seconds ?? -1, text: () => '' },
  { id: 'mode', header: 'By', cell: (m) => m.mode, sort: (m) => m.mode },
  { id: 'tenant', header: 'Tenant', cell: (m) => m.tenant_id, sort: (m) => m.tenant_id },
];

export function Mirrors() {
  const seesAll = useSeesAll();
  const [cluster, setCluster] = useParam('cluster', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const [creating, setCreating] = useParam<'' | '1' | 'peer'>('create', '', ['1', 'peer']);
  const clusters = useClusters().data ?? [];
  const site = useSite();
  const { actions, dialog } = useMirrorActions(site);
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(cluster && { cluster }), ...(wantedTenant && { tenant: wantedTenant }) };
  const pages = usePages(['mirrors', 'list', query], (cursor, signal) => page(api.GET('/dr/mirrors', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 5 });
  const create = (
    <Allowed operation="EnableMirror">
      <button type="button" className="btn btn-primary" onClick={() => setCreating('1')}>
        Mirror a volume
      </button>
    </Allowed>
  );
  return (
    <Page title="Mirrors" lead="Copies of volumes at other sites, and the way to work there." actions={create}>
      <div className="stack">
        <Card flush>
          <Table
            label="Mirrors"
            noun="mirror"
            columns={columnsWith(site).filter((c) => seesAll || c.id !== 'tenant')}
            pages={pages}
            rowKey={(m) => m.id}
            href={mirrorPath}
            actions={actions}
            tools={
              <>
                {clusters.length > 1 && <Choice label="Site" value={cluster} options={[{ value: '', label: 'All sites' }, ...clusters.map((c) => ({ value: c.id, label: site(c.id) }))]} onChange={setCluster} />}
                {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
              </>
            }
            empty={
              Object.keys(query).length > 0
                ? { icon: 'search', title: 'No mirror matches' }
                : { icon: 'peers', title: 'No volume is mirrored', text: 'A volume in Ceph can have a copy in a cluster at another site, where the work goes on when this site is lost.', action: create }
            }
          />
        </Card>
        <Preflight />
        <Peers onAdd={() => setCreating('peer')} />
      </div>
      {creating === '1' && (
        <Allowed operation="EnableMirror">
          <MirrorVolume onClose={() => setCreating('')} />
        </Allowed>
      )}
      {creating === 'peer' && (
        <Allowed operation="CreatePeer">
          <AddPeer onClose={() => setCreating('')} />
        </Allowed>
      )}
      {dialog}
    </Page>
  );
}

/** Whether a failover would work now. The service asks both sites of each mirror. */
function Preflight() {
  const { data, error, refetch } = useQuery({ queryKey: ['mirrors', 'preflight'], queryFn: ({ signal }) => body(api.GET('/dr/preflight', { signal })), refetchInterval: 30_000 });
  return (
    <Card title="Failover">
      {error && !data ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : !data ? (
        <p className="muted">Both sites are asked…</p>
      ) : (
        <>
          {data.ready ? <Notice tone="ok">A failover would work now.</Notice> : <Notice tone="warn">Something stands in the way of a failover:</Notice>}
          {data.blockers.length > 0 && (
            <ul>
              {data.blockers.map((b) => (
                <li key={b}>{b}</li>
              ))}
            </ul>
          )}
        </>
      )}
    </Card>
  );
}

const peerTones: Record<Peer['state'], Tone> = { unknown: 'idle', reachable: 'ok', unreachable: 'bad' };

const peerColumns = (site: (cluster: string) => string): readonly Column<Peer>[] => [
  { id: 'name', header: 'Peer', cell: (p) => p.name },
  { id: 'state', header: 'State', cell: (p) => <Status tone={peerTones[p.state]}>{p.state === 'unreachable' ? 'does not answer' : p.state}</Status> },
  { id: 'of', header: 'Of', cell: (p) => site(p.cluster_id) },
  { id: 'remote', header: 'Other cluster', cell: (p) => (p.remote_cluster_id ? site(p.remote_cluster_id) : p.remote_fsid) },
  { id: 'error', header: 'Last error', cell: (p) => p.last_error },
  { id: 'created', header: 'Created', cell: (p) => <Time at={p.created_at} /> },
];

const usePeers = () => useQuery({ queryKey: ['mirrors', 'peers'], queryFn: ({ signal }) => body(api.GET('/dr/peers', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 10_000 });

function Peers({ onAdd }: { onAdd: () => void }) {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const site = useSite();
  const { data, error, refetch } = usePeers();
  const remove = (p: Peer) =>
    confirm({
      title: `Remove the peer ${p.name}?`,
      body: <p>Volumes cannot be mirrored to it any more. A peer that mirrors use stays. What the clusters know of each other stays, too.</p>,
      action: 'Remove the peer',
      danger: true,
      run: async () => {
        await api.DELETE('/dr/peers/{id}', { params: { path: { id: p.id } } });
        await refresh();
      },
      done: `The peer ${p.name} is removed.`,
    });
  return (
    <Card
      title="Peers"
      flush
      actions={
        <Allowed operation="CreatePeer">
          <button type="button" className="btn" onClick={onAdd}>
            Add a peer
          </button>
        </Allowed>
      }
    >
      <Table
        brief
        label="Peers"
        noun="peer"
        columns={peerColumns(site)}
        pages={wholeList(data, error ?? undefined, () => void refetch())}
        rowKey={(p) => p.id}
        actions={(p) => (allowed('DeletePeer') ? [{ label: 'Remove…', danger: true, run: () => remove(p) }] : [])}
        empty={{ icon: 'site', title: 'There are no peers', text: 'A peer is a Ceph cluster at another site. The guide says how to make the token that it takes.' }}
      />
    </Card>
  );
}

function AddPeer({ onClose }: { onClose: () => void }) {
  const refresh = useRefresh();
  const clusters = useClusters().data;
  const backends = useBackends().data;
  if (!clusters || !backends) return null;
  const ceph = clusters.flatMap((c) => backends.filter((b) => b.id === c.backend_id && b.backend_type === 'ceph').map((b) => ({ value: c.id, label: b.name })));
  return (
    <FormDialog<PeerSpec & { cluster: string }>
      title="Add a peer"
      schema={{ ...schemas.CreatePeer, properties: { ...schemas.CreatePeer.properties, cluster: { type: 'string' } } }}
      fields={[
        { name: 'name', label: 'Name', hint: 'Unique' },
        { name: 'cluster', label: 'Cluster at this site', options: ceph },
        { name: 'secret_ref', label: 'Token', hint: 'The entry of the gateway’s setting mirror-peers' },
      ]}
      values={{ cluster: ceph[0]?.value }}
      warning={() => (ceph.length === 0 ? 'There is no Ceph cluster yet.' : undefined)}
      action="Add the peer"
      onClose={onClose}
      onSubmit={async ({ cluster, ...spec }) => {
        await body(api.POST('/dr/peers', { params: { query: { cluster } }, body: spec }));
        onClose();
        toast(`The peer ${spec.name} is added.`);
        await refresh();
      }}
    />
  );
}

const mirrorSchema: Schema = {
  type: 'object',
  required: ['volume', 'peer'],
  properties: { volume: { type: 'string', minLength: 1 }, peer: { type: 'string', minLength: 1 }, mode: { type: 'string' } },
};

function MirrorVolume({ onClose }: { onClose: () => void }) {
  const refresh = useRefresh();
  const clusters = useClusters().data;
  const backends = useBackends().data;
  const peers = usePeers().data;
  const volumes = useQuery({ queryKey: ['volumes', 'mirrorable'], queryFn: ({ signal }) => body(api.GET('/volumes', { params: { query: { limit: pageLimit, kind: 'block' } }, signal })) }).data;
  // The form knows its choices from the beginning.
  if (!volumes || !clusters || !backends || !peers) return null;
  const offered = groupable(volumes, clusters, backends);
  return (
    <FormDialog<{ volume: string; peer: string; mode: MirrorMode }>
      title="Mirror a volume"
      schema={mirrorSchema}
      fields={[
        { name: 'volume', label: 'Volume', options: offered.map((v) => ({ value: v.id, label: `${v.name}, ${bytes(v.size_bytes)}${v.tenant_id ? `, of ${v.tenant_id}` : ''}` })) },
        { name: 'peer', label: 'Peer', options: peers.map((p) => ({ value: p.id, label: p.name })) },
        {
          name: 'mode',
          label: 'Changes are sent',
          options: [
            { value: 'snapshot', label: 'from time to time, by snapshots' },
            { value: 'journal', label: 'each at once, by a journal, which makes writes slower' },
          ],
        },
      ]}
      values={{ volume: offered[0]?.id, peer: peers[0]?.id, mode: 'snapshot' }}
      warning={() => (peers.length === 0 ? 'There is no peer yet: add one first.' : offered.length === 0 ? 'There is no volume in Ceph that could be mirrored.' : undefined)}
      action="Mirror the volume"
      onClose={onClose}
      onSubmit={async ({ volume, peer, mode }) => {
        await body(api.POST('/volumes/{id}/mirror', { params: { path: { id: volume }, query: { peer, mode } } }));
        onClose();
        toast('The mirroring begins.');
        await refresh();
      }}
    >
      <p>Its copy at the other site is a volume of the same tenant, and counts for its quota.</p>
    </FormDialog>
  );
}
