/** The snapshots of an image with the images that were made of them: take, clone, roll back, delete. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { Empty, Notice } from '../../ui/notice';
import { plural } from '../../ui/number';
import { usePages } from '../../ui/paging';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { DateTime } from '../../ui/time';
import { api, schemas, useMay, type RBDImage, type RBDSnapshot } from '../api';
import { imagePath } from '../links';
import { useRefresh } from '../live';
import { SnapshotTree } from '../snapshot-tree';
import { may, VolumeStatus } from '../states';
import { at, useOpenImage } from './actions';
import { clonesOf, imagesOf } from './find';

export function ImageSnapshots({ image: i, take }: { image: RBDImage; take: MenuAction | undefined }) {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [cloning, setCloning] = useState<RBDSnapshot>();
  const pages = usePages(
    ['images', 'snapshots', i.id],
    (cursor, signal) => page(api.GET('/rbd-images/{pool}/{image}/snapshots', { params: { path: at(i).params.path, query: { cluster: i.cluster_id, cursor } }, signal })),
    { refreshSeconds: 5 },
  );
  const others = useQuery({ queryKey: ['images', 'of', i.cluster_id], queryFn: ({ signal }) => imagesOf({ cluster: i.cluster_id }, signal), refetchInterval: 10_000 }).data;
  const path = (s: RBDSnapshot) => ({ params: { path: { ...at(i).params.path, snap: s.name }, query: at(i).params.query } });
  const rollBack = (s: RBDSnapshot) =>
    confirm({
      title: `Roll ${i.name} back to ${s.name}?`,
      body: (
        <p>
          {i.name} gets the content {s.created_at ? <>of <DateTime at={s.created_at} /></> : 'that the snapshot has'}, and its size of {bytes(s.size_bytes)}. What was written since is lost. No client may have the image open.
        </p>
      ),
      typed: i.name,
      action: 'Roll back',
      danger: true,
      run: async () => {
        await api.POST('/rbd-images/{pool}/{image}/rollback', { ...at(i), body: { snap: s.name } });
        await refresh();
      },
      done: `${i.name} is being rolled back.`,
    });
  const remove = (s: RBDSnapshot, clones: readonly RBDImage[]) =>
    confirm({
      title: `Delete the snapshot ${s.name}?`,
      body: (
        <>
          <p>{i.name} stays as it is. It cannot be put back to {s.name} any more.</p>
          {clones.length > 0 && (
            <Notice tone="warn">
              {plural(clones.length, 'image depends', 'images depend')} on it: {clones.map((c) => c.name).join(', ')}. Flatten {clones.length === 1 ? 'it' : 'them'} first.
            </Notice>
          )}
        </>
      ),
      action: 'Delete the snapshot',
      danger: true,
      run: async () => {
        await api.DELETE('/rbd-images/{pool}/{image}/snapshots/{snap}', path(s));
        await refresh();
      },
      done: `The snapshot ${s.name} is being deleted.`,
    });
  // What the gateway did not make, it only shows.
  const actions = (s: RBDSnapshot, clones: readonly RBDImage[]): MenuAction[] =>
    s.id === ''
      ? []
      : [
          ...(allowed('CloneRBDImage') ? [{ label: 'Clone…', run: () => setCloning(s) }] : []),
          ...(may(i, 'rollback') && allowed('RollbackRBDImage') ? [{ label: 'Roll back…', danger: true, run: () => rollBack(s) }] : []),
          ...(allowed('DeleteRBDSnapshot') ? [{ label: 'Delete…', danger: true, run: () => remove(s, clones) }] : []),
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
      <div className="stack">
        <SnapshotTree
          label={`Snapshots of ${i.name}`}
          pages={pages}
          node={(s) => {
            const clones = clonesOf(i, s.name, others?.images ?? []);
            return {
              key: s.name,
              name: s.name,
              line: <SnapshotLine snapshot={s} />,
              actions: actions(s, clones),
              below: {
                label: `Images made of ${s.name}`,
                items: clones.map((c) => ({
                  key: c.id,
                  content: (
                    <span className="tree-name">
                      <Link href={imagePath(c)}>{c.name}</Link>
                      <VolumeStatus volume={c} />
                      <span className="muted small">
                        image of {bytes(c.size_bytes)} in {c.pool}
                      </span>
                    </span>
                  ),
                })),
              },
            };
          }}
          empty={
            <Empty icon="clock" title="There are no snapshots">
              A snapshot keeps the image as it is now. The image can be put back to it, and new images can be made of it.
            </Empty>
          }
        />
        {others?.more && <p className="muted small">The cluster has more images than were looked through for clones.</p>}
      </div>
      {cloning && <Clone image={i} snapshot={cloning} onClose={() => setCloning(undefined)} />}
    </Card>
  );
}

function SnapshotLine({ snapshot: s }: { snapshot: RBDSnapshot }) {
  return (
    <span className="tree-name">
      <b>{s.name}</b>
      {s.protected && <Status tone="idle">protected</Status>}
      <span className="muted small">
        {s.created_at ? <DateTime at={s.created_at} /> : 'made at a time that is not known'}, of {bytes(s.size_bytes)}
        {s.id === '' && ', made by others: the gateway only shows it'}
      </span>
    </span>
  );
}

const cloneSchema: Schema = { ...schemas.CloneRBDImage, required: ['name'] };

function Clone({ image: i, snapshot: s, onClose }: { image: RBDImage; snapshot: RBDSnapshot; onClose: () => void }) {
  const refresh = useRefresh();
  const open = useOpenImage();
  return (
    <FormDialog<{ name: string }>
      title={`Clone ${s.name}`}
      schema={cloneSchema}
      fields={[{ name: 'name', label: 'Name of the new image', hint: `Unique in the pool ${i.pool}` }]}
      action="Clone the snapshot"
      onClose={onClose}
      onSubmit={async ({ name }) => {
        const { resource } = await body(api.POST('/rbd-images/{pool}/{image}/clone', { ...at(i), body: { name, snap: s.name } }));
        onClose();
        await refresh();
        open(resource);
      }}
    >
      <p>The new image begins with what the snapshot holds, and shares data with it until it is flattened.</p>
    </FormDialog>
  );
}
