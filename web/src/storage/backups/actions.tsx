/** The actions on a backup, for its row and its page. */
import { useState, type ReactNode } from 'react';
import { useLocation } from 'wouter';
import type { BulkAction } from '../../ui/bulk';
import { useConfirm } from '../../ui/confirm';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { bytes } from '../../ui/size';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Backup, type BackupVerifySpec } from '../api';
import { restorePath } from '../links';
import { useRefresh } from '../live';
import { mayDeleteBackup, restorable } from '../states';

const at = (b: Backup) => ({ params: { path: { id: b.id } } });

export function useBackupActions(): { actions: (backup: Backup) => MenuAction[]; bulk: BulkAction<Backup>[]; dialog: ReactNode } {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const [verifying, setVerifying] = useState<Backup>();
  const remove = (b: Backup) =>
    confirm({
      title: `Delete the backup of ${b.volume_name}?`,
      body: (
        <p>
          The backup of <DateTime at={b.created_at} /> is removed from its bucket{b.mode === 'data' ? `: the content of ${b.volume_name} at that time, ${bytes(b.size_bytes)}` : ''}. This cannot be taken back. The other backups of {b.volume_name} can be restored as before.
        </p>
      ),
      // One that failed holds nothing that would be missed.
      ...(b.state === 'completed' && { typed: b.volume_name }),
      action: 'Delete the backup',
      danger: true,
      run: async () => {
        await api.DELETE('/backups/{id}', at(b));
        await refresh();
      },
      done: `The backup of ${b.volume_name} is being deleted.`,
    });
  const putBack = (b: Backup) =>
    confirm({
      title: `Put ${b.volume_name} back?`,
      body: (
        <p>
          The volume <b>{b.volume_name}</b> gets the content that it had at <DateTime at={b.created_at} />. What was written to it since is lost. Until all of the backup is read, the volume stays as it is. A volume that has snapshots or that clients have open is not put back.
        </p>
      ),
      typed: b.volume_name,
      action: 'Put the volume back',
      danger: true,
      run: async () => {
        await api.POST('/backups/{id}/restore', { ...at(b), body: { in_place: true, confirm: true } });
        await refresh();
      },
      done: `${b.volume_name} is being put back.`,
    });
  return {
    actions: (b) => [
      ...(restorable(b) && allowed('RestoreBackup') ? [{ label: 'Restore…', run: () => navigate(restorePath(b)) }] : []),
      ...(restorable(b) && allowed('VerifyBackup') ? [{ label: 'Verify…', run: () => setVerifying(b) }] : []),
      // It takes an admin, as deleting a volume does.
      ...(restorable(b) && allowed('DeleteVolume') ? [{ label: 'Put the volume back…', danger: true, run: () => putBack(b) }] : []),
      ...(mayDeleteBackup(b) && allowed('DeleteBackup') ? [{ label: 'Delete…', danger: true, run: () => remove(b) }] : []),
    ],
    bulk: allowed('DeleteBackup')
      ? [
          {
            label: 'Delete',
            danger: true,
            applies: mayDeleteBackup,
            body: 'They are removed from their buckets. This cannot be taken back. Other backups can be restored as before.',
            run: (b) => api.DELETE('/backups/{id}', at(b)),
            after: refresh,
          },
        ]
      : [],
    dialog: verifying && (
      <FormDialog<BackupVerifySpec>
        title={`Verify the backup of ${verifying.volume_name}`}
        schema={schemas.VerifyBackup}
        fields={[
          {
            name: 'method',
            label: 'Check',
            options: [
              { value: 'stored', label: 'what is in the bucket' },
              { value: 'source', label: 'what is in the bucket against the snapshot' },
              { value: 'restore', label: 'a volume that is made of it and removed again' },
            ],
            hint: 'The snapshot of a backup is kept until the next backup of the volume. A volume that is made of it takes room meanwhile',
          },
        ]}
        values={{ method: 'stored' }}
        action="Verify the backup"
        onClose={() => setVerifying(undefined)}
        onSubmit={async (input) => {
          await api.POST('/backups/{id}/verify', { ...at(verifying), body: input });
          setVerifying(undefined);
          toast(`The backup of ${verifying.volume_name} is being verified.`);
          await refresh();
        }}
      >
        <p>
          All of the backup of <DateTime at={verifying.created_at} /> is read back and compared: {bytes(verifying.size_bytes)}.
        </p>
      </FormDialog>
    ),
  };
}
