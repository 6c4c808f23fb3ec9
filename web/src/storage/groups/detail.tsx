/** A group: its volumes, and its snapshots with the way back to them. */
import { useQuery } from '@tanstack/react-query';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu, type MenuAction } from '../../ui/menu';
import { Empty } from '../../ui/notice';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages, wholeList, type Pages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Table, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { api, useMay, type GroupSnapshot, type Volume, type VolumeGroup } from '../api';
import { Busy } from '../jobs';
import { useBackendNames, volumePath } from '../links';
import { useLive, useRefresh } from '../live';
import { SnapshotTree } from '../snapshot-tree';
import { consistencyText, SnapshotStatus, underWay, VolumeStatus } from '../states';
import { useGroupActions } from './actions';

const list = { title: 'Groups', href: '/groups' };

const volumeColumns: readonly Column<Volume>[] = [
  { id: 'name', header: 'Volume', cell: (v) => v.name },
  { id: 'state', header: 'State', cell: (v) => <VolumeStatus volume={v} /> },
  { id: 'size', header: 'Size', cell: (v) => bytes(v.size_bytes), end: true },
];

export function GroupDetail({ id }: { id: string }) {
  const { actions, snapshot, dialog } = useGroupActions();
  const backend = useBackendNames();
  const { jobs } = useLive();
  const query = useQuery({ queryKey: ['groups', 'one', id], queryFn: ({ signal }) => body(api.GET('/volume-groups/{id}', { params: { path: { id } }, signal })), refetchInterval: 10_000 });
  const g = loaded(query);
  const snapshots = usePages(['groups', 'snapshots', id], (cursor, signal) => page(api.GET('/volume-groups/{id}/snapshots', { params: { path: { id }, query: { cursor } }, signal })), { refreshSeconds: 3 });
  const volumes = useQuery({
    queryKey: ['volumes', 'of group', g?.volume_ids],
    queryFn: ({ signal }) => Promise.all((g?.volume_ids ?? []).map((volume) => body(api.GET('/volumes/{id}', { params: { path: { id: volume } }, signal })))),
    enabled: g !== undefined,
    refetchInterval: 5_000,
  });
  if (!g) {
    return (
      <Absent noun="group" list={list} query={query}>
        It may have been dissolved, or belong to another tenant.
      </Absent>
    );
  }
  const job = jobs?.find((j) => underWay(j) && snapshots.rows?.some((s) => s.id === j.resource.id));
  return (
    <Page
      title={g.name}
      above={[list]}
      lead={`Group of ${plural(g.volume_ids.length, 'volume')}${g.tenant_id ? `, of the tenant ${g.tenant_id}` : ''}`}
      actions={<Menu label={`Actions for ${g.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(g)} />}
    >
      <div className="stack">
        {job && <Busy key={job.id} job={job} />}
        <Card title="Volumes" flush>
          <Table brief label={`Volumes of ${g.name}`} noun="volume" columns={volumeColumns} pages={wholeList(volumes.data, volumes.error ?? undefined, () => void volumes.refetch())} rowKey={(v) => v.id} href={volumePath} empty={{ icon: 'deployment', title: 'It has no volumes' }} />
        </Card>
        <Snapshots group={g} pages={snapshots} take={snapshot(g)} />
        <Card title="Group">
          <Facts
            facts={[
              ['Backend', backend(g.cluster_id) ?? <span key="b" className="muted">not known</span>],
              ['Tenant', g.tenant_id || <span key="t" className="muted">none</span>],
              ['Created', <DateTime key="c" at={g.created_at} />],
              ['ID', <Copyable key="i" text={g.id} />],
            ]}
          />
        </Card>
      </div>
      {dialog}
    </Page>
  );
}

function Snapshots({ group: g, pages, take }: { group: VolumeGroup; pages: Pages<GroupSnapshot>; take: MenuAction | undefined }) {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const { names } = useLive();
  const at = (s: GroupSnapshot) => ({ params: { path: { id: g.id, snap: s.id } } });
  const rollBack = (s: GroupSnapshot) =>
    confirm({
      title: `Roll ${g.name} back to ${s.name}?`,
      body: (
        <p>
          {s.volume_ids.map((id) => names.get(id) ?? 'a volume that is not known').join(', ')}: all get the content of <DateTime at={s.created_at} />. What was written since is lost. No client may use them.
        </p>
      ),
      typed: g.name,
      action: 'Roll back',
      danger: true,
      run: async () => {
        await api.POST('/volume-groups/{id}/snapshots/{snap}/rollback', { ...at(s), body: { confirm: true } });
        await refresh();
      },
      done: `${g.name} is being rolled back.`,
    });
  const remove = (s: GroupSnapshot) =>
    confirm({
      title: `Delete the snapshot ${s.name}?`,
      body: <p>The volumes stay as they are. They cannot be put back to {s.name} any more.</p>,
      action: 'Delete the snapshot',
      danger: true,
      run: async () => {
        await api.DELETE('/volume-groups/{id}/snapshots/{snap}', at(s));
        await refresh();
      },
      done: `The snapshot ${s.name} is being deleted.`,
    });
  const actions = (s: GroupSnapshot): MenuAction[] => [
    ...(s.state === 'ready' && allowed('RollbackGroup') ? [{ label: 'Roll back…', danger: true, run: () => rollBack(s) }] : []),
    ...((s.state === 'ready' || s.state === 'error') && allowed('DeleteGroupSnapshot') ? [{ label: 'Delete…', danger: true, run: () => remove(s) }] : []),
  ];
  return (
    <Card
      title="Snapshots"
      actions={
        take && (
          <button type="button" className="btn btn-primary" onClick={take.run}>
            Take a snapshot
          </button>
        )
      }
    >
      <SnapshotTree
        label={`Snapshots of ${g.name}`}
        pages={pages}
        node={(s) => ({
          key: s.id,
          name: s.name,
          actions: actions(s),
          line: (
            <span className="tree-name">
              <b>{s.name}</b>
              <SnapshotStatus snapshot={s} />
              <span className="muted small">
                <DateTime at={s.created_at} />, of {plural(s.volume_ids.length, 'volume')}, {consistencyText(s.consistency)}
              </span>
              {s.last_error !== '' && <span className="small bad">{s.last_error}</span>}
            </span>
          ),
        })}
        empty={
          <Empty icon="clock" title="There are no snapshots">
            A snapshot keeps all volumes of the group as they are at one moment. They can be put back to it together.
          </Empty>
        }
      />
    </Card>
  );
}
