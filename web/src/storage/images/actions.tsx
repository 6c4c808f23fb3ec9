/** The actions on an image, for its row and its page. */
import { useState, type ReactNode } from 'react';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { DraftError } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { atField } from '../../ui/problem';
import type { Schema } from '../../ui/schema';
import { bytes, exactSize } from '../../ui/size';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type RBDImage, type RBDSnapshotSpec } from '../api';
import { imagePath, jobPath, usePools } from '../links';
import { useRefresh } from '../live';
import { bytesAt } from '../refused';
import { may, type Verb } from '../states';
import { MoveToTrash } from '../trash';
import { usedText } from '../volumes/columns';
import { checked, sizeField } from '../volumes/sizes';

type What = 'snapshot' | 'expand' | 'shrink' | 'limit' | 'move' | 'trash';

interface Open {
  what: What;
  image: RBDImage;
}

export interface ImageActions {
  /** All actions that make sense in the image's state, for a menu. */
  actions: (image: RBDImage) => MenuAction[];
  /** Takes a snapshot, if that makes sense now. */
  snapshot: (image: RBDImage) => MenuAction | undefined;
  /** The open form, to be rendered on the page. */
  dialog: ReactNode;
}

export const at = (i: RBDImage) => ({ params: { path: { pool: i.pool, image: i.name }, query: { cluster: i.cluster_id } } });

type Operation = Parameters<ReturnType<typeof useMay>>[0];

const forms: readonly { what: What; label: string; verb: Verb; operation: Operation; danger?: boolean }[] = [
  { what: 'snapshot', label: 'Take a snapshot…', verb: 'snapshot', operation: 'CreateRBDSnapshot' },
  { what: 'expand', label: 'Expand…', verb: 'expand', operation: 'ResizeRBDImage' },
  { what: 'limit', label: 'Limit…', verb: 'change', operation: 'SetRBDQoS' },
  { what: 'move', label: 'Move…', verb: 'move', operation: 'MigrateRBDImage' },
  // Shrinking takes an admin, as deleting images does.
  { what: 'shrink', label: 'Shrink…', verb: 'change', operation: 'DeleteRBDImage', danger: true },
  { what: 'trash', label: 'Move to the trash…', verb: 'trash', operation: 'DeleteRBDImage', danger: true },
];

export function useImageActions(): ImageActions {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [open, setOpen] = useState<Open>();
  const flatten = (i: RBDImage) =>
    confirm({
      title: `Flatten ${i.name}?`,
      body: (
        <p>
          What {i.name} has of {i.parent} is copied into it. It does not depend on that snapshot any more, and takes more room. It can be used meanwhile.
        </p>
      ),
      action: 'Flatten the image',
      run: async () => {
        await api.POST('/rbd-images/{pool}/{image}/flatten', at(i));
        await refresh();
      },
      done: `${i.name} is being flattened.`,
    });
  const remove = (i: RBDImage) =>
    confirm({
      title: `Delete ${i.name}?`,
      body: (
        <p>
          The image <b>{i.name}</b> in the pool {i.pool} is removed with its content. It has {bytes(i.size_bytes)}; {i.used_bytes === null ? 'how much of it is used is not known' : `${usedText(i)} of it are used`}. This cannot be taken back. An image that has snapshots or that clients have open is not deleted.
        </p>
      ),
      typed: i.name,
      action: 'Delete the image',
      danger: true,
      run: async () => {
        await api.DELETE('/rbd-images/{pool}/{image}', at(i));
        await refresh();
      },
      done: `${i.name} is being deleted.`,
    });
  const action = (what: What, i: RBDImage): MenuAction[] =>
    forms.filter((f) => f.what === what && may(i, f.verb) && allowed(f.operation)).map(({ label, danger }) => ({ label, ...(danger && { danger }), run: () => setOpen({ what, image: i }) }));
  return {
    actions: (i) => [
      ...action('snapshot', i),
      ...action('expand', i),
      ...action('limit', i),
      ...(i.parent !== '' && may(i, 'change') && allowed('FlattenRBDImage') ? [{ label: 'Flatten…', run: () => flatten(i) }] : []),
      ...action('move', i),
      ...action('shrink', i),
      ...action('trash', i),
      ...(may(i, 'delete') && allowed('DeleteRBDImage') ? [{ label: 'Delete…', danger: true, run: () => remove(i) }] : []),
    ],
    snapshot: (i) => action('snapshot', i)[0],
    dialog: open && <Asked open={open} onClose={() => setOpen(undefined)} />,
  };
}

/** What is needed of the image's size, and the name that must be typed before it becomes smaller. */
const shrinkSchema: Schema = {
  type: 'object',
  required: ['size_bytes', 'typed'],
  properties: { size_bytes: schemas.ResizeRBDImage.properties?.['size_bytes'] as Schema, typed: { type: 'string' } },
};

const limitSchema: Schema = {
  type: 'object',
  properties: { iops: { type: 'integer', minimum: 0, maximum: 1_000_000_000 }, bps: { type: 'integer', minimum: 0, maximum: 1_000_000_000_000 } },
};

const moveSchema: Schema = { type: 'object', required: ['dest_pool'], properties: { dest_pool: { type: 'string', minLength: 1 } } };

function Asked({ open: { what, image: i }, onClose }: { open: Open; onClose: () => void }) {
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const others = usePools().data?.filter((p) => p.cluster_id === i.cluster_id && p.kind === 'rbd' && !p.missing && p.name !== i.pool);
  const begun = async (call: Promise<unknown>, text: string) => {
    await call;
    onClose();
    toast(text);
    await refresh();
  };
  const resize = (size_bytes: number, allow_shrink: boolean) => atField(body(api.POST('/rbd-images/{pool}/{image}/resize', { ...at(i), body: { size_bytes, allow_shrink } })), bytesAt('size_bytes'));
  switch (what) {
    case 'trash': {
      const { path, query } = at(i).params;
      const move = async (trash_secs: number) => {
        await body(api.DELETE('/rbd-images/{pool}/{image}', { params: { path, query: { ...query, trash_secs } } }));
        await refresh();
      };
      return <MoveToTrash name={i.name} what="image" onClose={onClose} move={move} />;
    }
    case 'snapshot':
      return (
        <FormDialog<RBDSnapshotSpec>
          title={`Take a snapshot of ${i.name}`}
          schema={schemas.CreateRBDSnapshot}
          fields={[{ name: 'name', label: 'Name', hint: 'Unique for the image' }]}
          action="Take the snapshot"
          onClose={onClose}
          onSubmit={(input) => begun(body(api.POST('/rbd-images/{pool}/{image}/snapshots', { ...at(i), body: input })), `The snapshot of ${i.name} is being taken.`)}
        >
          <p>The snapshot keeps the image as it is now. The image can be put back to it, and new images can be made of it.</p>
        </FormDialog>
      );
    case 'expand':
      return (
        <FormDialog<{ size_bytes: number }>
          title={`Expand ${i.name}`}
          schema={schemas.ResizeRBDImage}
          fields={[checked(sizeField('size_bytes', 'New size', { hint: `More than ${bytes(i.size_bytes)}, which it has now` }), (size) => (size > i.size_bytes ? undefined : `Must be more than ${exactSize(i.size_bytes)}.`))]}
          action="Expand the image"
          onClose={onClose}
          onSubmit={({ size_bytes }) => begun(resize(size_bytes, false), `${i.name} is being expanded.`)}
        />
      );
    case 'shrink':
      return (
        <FormDialog<{ size_bytes: number; typed: string }>
          title={`Shrink ${i.name}`}
          schema={shrinkSchema}
          fields={[
            checked(sizeField('size_bytes', 'New size', { hint: `Less than ${bytes(i.size_bytes)}, which it has now` }), (size) => (size < i.size_bytes ? undefined : `Must be less than ${exactSize(i.size_bytes)}.`)),
            {
              name: 'typed',
              label: `Type ${i.name} to continue`,
              read: (text) => {
                if (text !== i.name) throw new DraftError(`Type ${i.name}, the name of the image.`);
                return text;
              },
            },
          ]}
          action="Shrink the image"
          onClose={onClose}
          onSubmit={({ size_bytes }) => begun(resize(size_bytes, true), `${i.name} is being shrunk.`)}
        >
          <p>What lies beyond the new size is cut off, and lost. Shrink the file system in it first. No client may have the image open.</p>
        </FormDialog>
      );
    case 'limit':
      return (
        <FormDialog<{ iops?: number; bps?: number }>
          title={`Limit ${i.name}`}
          schema={limitSchema}
          fields={[
            { name: 'iops', label: 'Requests per second', hint: 'No limit, when empty' },
            sizeField('bps', 'Bytes per second', { placeholder: '100 MiB', hint: 'With their unit, as in 100 MiB. No limit, when empty' }),
          ]}
          values={{ iops: i.iops || undefined, bps: i.bps || undefined }}
          action="Limit the image"
          onClose={onClose}
          onSubmit={({ iops = 0, bps = 0 }) => begun(api.POST('/rbd-images/{pool}/{image}/qos', { params: { ...at(i).params, query: { ...at(i).params.query, iops, bps } } }), `The limits of ${i.name} are being set.`)}
        >
          <p>Clients of librbd, such as QEMU, obey the limits at once. The kernel’s client does not know them.</p>
        </FormDialog>
      );
    case 'move':
      return others ? (
        <FormDialog<{ dest_pool: string }>
          title={`Move ${i.name}`}
          schema={moveSchema}
          fields={[{ name: 'dest_pool', label: 'Pool', options: others.map((p) => ({ value: p.name, label: p.name })), hint: `Another one than ${i.pool}, where it is` }]}
          values={{ dest_pool: others[0]?.name }}
          warning={() => (others.length === 0 ? 'Its cluster has no other pool for images.' : undefined)}
          action="Move the image"
          onClose={onClose}
          onSubmit={async ({ dest_pool }) => {
            const { job_id } = await body(api.POST('/rbd-images/{pool}/{image}/migrate', { params: { ...at(i).params, query: { ...at(i).params.query, dest_pool } } }));
            onClose();
            await refresh();
            // The image has another page in its new pool.
            navigate(jobPath({ id: job_id }));
          }}
        >
          <p>The image moves with its snapshots, and is in the new pool under the same name. Clients must have closed it when the job begins. They may open it there while its content is copied.</p>
        </FormDialog>
      ) : null;
  }
}

/** Leads to an image that a job makes. */
export function useOpenImage(): (image: { cluster_id: string; pool: string; image: string }) => void {
  const [, navigate] = useLocation();
  return ({ cluster_id, pool, image }) => navigate(imagePath({ cluster_id, pool, name: image }));
}
