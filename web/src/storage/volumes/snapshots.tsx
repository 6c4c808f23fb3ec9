/** The snapshots of a volume with the volumes that were made of them: take, clone, restore, delete. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useLocation } from 'wouter';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { Empty, Notice } from '../../ui/notice';
import { plural } from '../../ui/number';
import { usePages } from '../../ui/paging';
import { atField } from '../../ui/problem';
import { Meter } from '../../ui/progress';
import { bytes } from '../../ui/size';
import { DateTime } from '../../ui/time';
import { api, pageLimit, schemas, useMay, type CloneSpec, type RestoreSpec, type Snapshot, type Volume } from '../api';
import { volumePath } from '../links';
import { useLive, useRefresh } from '../live';
import { bytesAt } from '../refused';
import { SnapshotTree } from '../snapshot-tree';
import { consistencyText, may, SnapshotStatus, underWay, VolumeStatus } from '../states';
import type { VolumeActions } from './actions';
import { sizeField } from './sizes';
import { branchOf, isWhole, type Branch } from './tree';

/** How many pages of volumes are looked through for those that were made of a snapshot. The API does not filter by it. */
const mostPages = 5;

/** The volumes of a tenant that were made of any of the snapshots. */
async function clonesOf(tenant: string, snapshots: readonly Snapshot[], signal: AbortSignal): Promise<Volume[]> {
  const found: Volume[] = [];
  let cursor: string | undefined;
  for (let i = 0; i < mostPages && !isWhole(snapshots, found); i++) {
    const { items, next } = await page(api.GET('/volumes', { params: { query: { limit: pageLimit, cursor, ...(tenant && { tenant }) } }, signal }));
    found.push(...items.filter((v) => v.source_snapshot_id !== ''));
    if (next === undefined) break;
    cursor = next;
  }
  return found;
}

interface Making {
  what: 'clone' | 'restore';
  snapshot: Snapshot;
}

export function Snapshots({ volume, take }: { volume: Volume; take: ReturnType<VolumeActions['snapshot']> }) {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [making, setMaking] = useState<Making>();
  const pages = usePages(['volumes', 'snapshots', volume.id], (cursor, signal) => page(api.GET('/volumes/{id}/snapshots', { params: { path: { id: volume.id }, query: { cursor } }, signal })), { refreshSeconds: 3 });
  const snapshots = pages.rows;
  const dependents = snapshots?.reduce((sum, s) => sum + s.dependents, 0) ?? 0;
  const clones = useQuery({
    queryKey: ['volumes', 'clones', volume.id, dependents],
    queryFn: ({ signal }) => clonesOf(volume.tenant_id, snapshots ?? [], signal),
    enabled: dependents > 0,
    refetchInterval: 5_000,
  });

  const remove = ({ snapshot: s, clones: made }: Branch) => {
    const n = s.dependents;
    confirm({
      title: `Delete the snapshot ${s.name}?`,
      body: (
        <>
          <p>
            {volume.name} stays as it is. Nothing can be made of {s.name} any more.
          </p>
          {n > 0 && (
            <Notice tone="warn">
              {plural(n, 'volume was', 'volumes were')} made of it, and {n === 1 ? 'stays' : 'stay'} as {n === 1 ? 'it is' : 'they are'}
              {made.length > 0 && `: ${made.map((v) => v.name).join(', ')}`}.
            </Notice>
          )}
        </>
      ),
      ...(n > 0 && { typed: s.name }),
      action: 'Delete the snapshot',
      danger: true,
      run: async () => {
        await api.DELETE('/snapshots/{id}', { params: { path: { id: s.id }, query: { ...(n > 0 && { force: true }) } } });
        await refresh();
      },
      done: `The snapshot ${s.name} is being deleted.`,
    });
  };
  const actions = (branch: Branch): MenuAction[] => {
    const s = branch.snapshot;
    const ready = s.state === 'ready';
    // One that volumes were made of takes an admin, as deleting volumes does.
    const removes = (ready || s.state === 'error') && allowed('DeleteSnapshot') && (s.dependents === 0 || allowed('DeleteVolume'));
    return [
      ...(ready && allowed('CloneSnapshot') ? [{ label: 'Clone…', run: () => setMaking({ what: 'clone', snapshot: s }) }] : []),
      ...(ready && allowed('RestoreSnapshot') ? [{ label: 'Restore…', run: () => setMaking({ what: 'restore', snapshot: s }) }] : []),
      ...(removes ? [{ label: 'Delete…', danger: true, run: () => remove(branch) }] : []),
    ];
  };
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
        label={`Snapshots of ${volume.name}`}
        pages={pages}
        node={(s) => {
          const branch = branchOf(s, clones.data ?? []);
          return { key: s.id, name: s.name, line: <SnapshotLine snapshot={s} />, actions: actions(branch), below: { label: `Volumes made of ${s.name}`, items: itemsOf(branch, clones.isPending) } };
        }}
        empty={
          <Empty icon="clock" title="There are no snapshots">
            A snapshot keeps the volume as it is now. New volumes can be made of it. {may(volume, 'snapshot') ? '' : volume.managed ? `The volume is ${volume.state}: there is nothing to take a snapshot of.` : 'The gateway did not make this volume, and only shows it.'}
          </Empty>
        }
      />
      {making && <MakeVolume making={making} onClose={() => setMaking(undefined)} />}
    </Card>
  );
}

function SnapshotLine({ snapshot: s }: { snapshot: Snapshot }) {
  const job = useLive().jobs?.find((j) => j.resource.id === s.id && underWay(j));
  return (
    <span className="tree-name">
      <b>{s.name}</b>
      <SnapshotStatus snapshot={s} />
      <span className="muted small">
        <DateTime at={s.created_at} />, of {bytes(s.size_bytes)}, takes {s.used_bytes === null ? 'an amount that is not known' : bytes(s.used_bytes)}, {consistencyText(s.consistency)}
      </span>
      {job && <Meter progress={job.progress} />}
      {s.last_error !== '' && <span className="small bad">{s.last_error}</span>}
    </span>
  );
}

function itemsOf({ clones, more }: Branch, looking: boolean) {
  const known = clones.map((v) => ({
    key: v.id,
    content: (
      <span className="tree-name">
        <Link href={volumePath(v)}>{v.name}</Link>
        <VolumeStatus volume={v} />
        <span className="muted small">volume of {bytes(v.size_bytes)}</span>
      </span>
    ),
  }));
  if (more === 0) return known;
  return [...known, { key: 'more', content: <span className="muted small">{looking ? 'Looking for the volumes that were made of it…' : `and ${plural(more, 'volume')} more`}</span> }];
}

/** A new volume of a snapshot. A clone may share its data with the snapshot, a restored volume is on its own. */
function MakeVolume({ making: { what, snapshot: s }, onClose }: { making: Making; onClose: () => void }) {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const at = { params: { path: { id: s.id } } };
  const done = async (made: Promise<{ resource: { volume_id: string } }>) => {
    const { resource } = await atField(made, bytesAt('size_bytes'));
    onClose();
    await refresh();
    navigate(volumePath({ id: resource.volume_id }));
  };
  const size = sizeField('size_bytes', 'Size', { hint: `At least ${bytes(s.size_bytes)}, which it is when empty` });
  if (what === 'clone') {
    return (
      <FormDialog<CloneSpec>
        title={`Clone ${s.name}`}
        schema={schemas.CloneSnapshot}
        fields={[{ name: 'name', label: 'Name of the new volume', hint: 'Unique within its tenant' }, size]}
        action="Clone the snapshot"
        onClose={onClose}
        onSubmit={(input) => done(body(api.POST('/snapshots/{id}/clone', { ...at, body: input })))}
      >
        <p>The new volume begins with what the snapshot holds.</p>
      </FormDialog>
    );
  }
  return (
    <FormDialog<RestoreSpec>
      title={`Restore ${s.name}`}
      schema={schemas.RestoreSnapshot}
      fields={[{ name: 'name', label: 'Name of the new volume', hint: 'Empty: it is made from that of the source and the time' }, size]}
      action="Restore to a new volume"
      onClose={onClose}
      onSubmit={(input) => done(body(api.POST('/snapshots/{id}/restore', { ...at, body: input })))}
    >
      <p>What the snapshot holds comes back as a new volume. The volume that the snapshot is of stays as it is.</p>
    </FormDialog>
  );
}
