/** The actions on a group, for its row and its page. */
import { useState, type ReactNode } from 'react';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { plural } from '../../ui/number';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type GroupSnapshotSpec, type VolumeGroup } from '../api';
import { useRefresh } from '../live';

export function useGroupActions(): { actions: (group: VolumeGroup) => MenuAction[]; snapshot: (group: VolumeGroup) => MenuAction | undefined; dialog: ReactNode } {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [taking, setTaking] = useState<VolumeGroup>();
  const dissolve = (g: VolumeGroup) =>
    confirm({
      title: `Dissolve ${g.name}?`,
      body: (
        <p>
          Its {plural(g.volume_ids.length, 'volume stays', 'volumes stay')} as {g.volume_ids.length === 1 ? 'it is' : 'they are'}. The schedules of the group are removed. A group that has snapshots is not dissolved: delete those first.
        </p>
      ),
      action: 'Dissolve the group',
      danger: true,
      run: async () => {
        await api.DELETE('/volume-groups/{id}', { params: { path: { id: g.id } } });
        await refresh();
      },
      done: `${g.name} is dissolved.`,
    });
  const snapshot = (g: VolumeGroup): MenuAction | undefined => (allowed('CreateGroupSnapshot') ? { label: 'Take a snapshot…', run: () => setTaking(g) } : undefined);
  return {
    actions: (g) => [snapshot(g), allowed('DeleteVolumeGroup') ? { label: 'Dissolve…', danger: true, run: () => dissolve(g) } : undefined].filter((a) => a !== undefined),
    snapshot,
    dialog: taking && (
      <FormDialog<GroupSnapshotSpec>
        title={`Take a snapshot of ${taking.name}`}
        schema={schemas.CreateGroupSnapshot}
        fields={[{ name: 'name', label: 'Name', hint: 'Unique for the group. Empty: it is made from the time' }]}
        action="Take the snapshot"
        onClose={() => setTaking(undefined)}
        onSubmit={async (input) => {
          await body(api.POST('/volume-groups/{id}/snapshots', { params: { path: { id: taking.id } }, body: input }));
          setTaking(undefined);
          toast(`The snapshot of ${taking.name} is being taken.`);
          await refresh();
        }}
      >
        <p>All {plural(taking.volume_ids.length, 'volume')} are kept as they are at one moment. Their clients wait with their writes for that moment.</p>
      </FormDialog>
    ),
  };
}
