/** The actions on a volume, for its row and its page. */
import { useState, type ReactNode } from 'react';
import type { BulkAction } from '../../ui/bulk';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { atField } from '../../ui/problem';
import { bytes } from '../../ui/size';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Expansion, type SnapshotSpec, type Volume } from '../api';
import { BackUp } from '../backups/create';
import { useRefresh } from '../live';
import { bytesAt } from '../refused';
import { may } from '../states';
import { MoveToTrash } from '../trash';
import { usedText } from './columns';
import { sizeField } from './sizes';

interface Open {
  what: 'expand' | 'snapshot' | 'backup' | 'trash';
  volume: Volume;
}

export interface VolumeActions {
  /** All actions that make sense in the volume's state, for a menu. */
  actions: (volume: Volume) => MenuAction[];
  /** What can be done with many of them. */
  bulk: BulkAction<Volume>[];
  /** Takes a snapshot, if that makes sense now. */
  snapshot: (volume: Volume) => MenuAction | undefined;
  /** Backs it up, if that makes sense now. */
  backup: (volume: Volume) => MenuAction | undefined;
  /** The open form, to be rendered on the page. */
  dialog: ReactNode;
}

const operations = { expand: 'ExpandVolume', snapshot: 'CreateSnapshot', backup: 'CreateBackup', trash: 'DeleteVolume', delete: 'DeleteVolume' } as const;

const at = (v: Volume) => ({ params: { path: { id: v.id } } });

export function useVolumeActions(): VolumeActions {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [open, setOpen] = useState<Open>();
  const can = (v: Volume, verb: keyof typeof operations) => may(v, verb) && allowed(operations[verb]);
  const remove = (v: Volume) =>
    confirm({
      title: `Delete ${v.name}?`,
      body: (
        <>
          <p>
            <b>{v.name}</b> is removed with its content. It has {bytes(v.size_bytes)}; {v.used_bytes === null ? 'how much of it is used is not known' : `${usedText(v)} of it are used`}. This cannot be taken back.
          </p>
          <p>A volume that has snapshots is not deleted: delete those first. Volumes that were made of them stay.</p>
        </>
      ),
      typed: v.name,
      action: 'Delete the volume',
      danger: true,
      run: async () => {
        await api.DELETE('/volumes/{id}', at(v));
        await refresh();
      },
      done: `${v.name} is being deleted.`,
    });
  const verbs: Record<keyof typeof operations, (v: Volume) => MenuAction> = {
    snapshot: (v) => ({ label: 'Take a snapshot…', run: () => setOpen({ what: 'snapshot', volume: v }) }),
    backup: (v) => ({ label: 'Back up…', run: () => setOpen({ what: 'backup', volume: v }) }),
    expand: (v) => ({ label: 'Expand…', run: () => setOpen({ what: 'expand', volume: v }) }),
    trash: (v) => ({ label: 'Move to the trash…', danger: true, run: () => setOpen({ what: 'trash', volume: v }) }),
    delete: (v) => ({ label: 'Delete…', danger: true, run: () => remove(v) }),
  };
  return {
    actions: (v) => (['snapshot', 'backup', 'expand', 'trash', 'delete'] as const).filter((verb) => can(v, verb)).map((verb) => verbs[verb](v)),
    bulk: allowed('DeleteVolume')
      ? [
          {
            label: 'Delete',
            danger: true,
            applies: (v) => may(v, 'delete'),
            body: 'They are removed with their content. This cannot be taken back. Those that have snapshots are not deleted: delete the snapshots first.',
            run: (v) => api.DELETE('/volumes/{id}', at(v)),
            after: refresh,
          },
        ]
      : [],
    snapshot: (v) => (can(v, 'snapshot') ? verbs.snapshot(v) : undefined),
    backup: (v) => (can(v, 'backup') ? verbs.backup(v) : undefined),
    dialog: open && <Asked open={open} onClose={() => setOpen(undefined)} refresh={refresh} />,
  };
}

function Asked({ open: { what, volume: v }, onClose, refresh }: { open: Open; onClose: () => void; refresh: () => Promise<unknown> }) {
  if (what === 'backup') return <BackUp volume={v} onClose={onClose} />;
  if (what === 'trash') {
    const move = async (trash_secs: number) => {
      await body(api.DELETE('/volumes/{id}', { params: { ...at(v).params, query: { trash_secs } } }));
      await refresh();
    };
    return <MoveToTrash name={v.name} what="volume" onClose={onClose} move={move} />;
  }
  if (what === 'expand') {
    return (
      <FormDialog<Expansion>
        title={`Expand ${v.name}`}
        schema={schemas.ExpandVolume}
        fields={[sizeField('new_size_bytes', 'New size', { hint: `More than ${bytes(v.size_bytes)}, which it has now. A volume cannot be made smaller again` })]}
        action="Expand the volume"
        onClose={onClose}
        onSubmit={async (input) => {
          await atField(body(api.POST('/volumes/{id}/expand', { ...at(v), body: input })), bytesAt('new_size_bytes'));
          onClose();
          toast(`${v.name} is being expanded.`);
          await refresh();
        }}
      />
    );
  }
  return (
    <FormDialog<SnapshotSpec>
      title={`Take a snapshot of ${v.name}`}
      schema={schemas.CreateSnapshot}
      fields={[{ name: 'name', label: 'Name', hint: 'Unique for the volume. Empty: it is made from the time' }]}
      action="Take the snapshot"
      onClose={onClose}
      onSubmit={async (input) => {
        await body(api.POST('/volumes/{id}/snapshots', { ...at(v), body: input }));
        onClose();
        toast(`The snapshot of ${v.name} is being taken.`);
        await refresh();
      }}
    >
      <p>The snapshot keeps the volume as it is now. It can be made a new volume later.</p>
    </FormDialog>
  );
}
