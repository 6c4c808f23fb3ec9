/** The forms about backups: make one, restore one, keep one. */
import { useQueryClient } from '@tanstack/react-query';
import { FormDialog } from '../../ui/form';
import { Notice } from '../../ui/notice';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, useSeesAll, type Backup, type BackupSpec, type RestoreSpec, type VM } from '../api';
import { leftOutText } from './left-out';

/** Refreshes what a change of backups touches. */
export function useRefresh(): () => Promise<unknown> {
  const queries = useQueryClient();
  return () => Promise.all(['backups', 'vms', 'live', 'jobs'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
}

/** Makes a backup of the VM, or asks of which one. */
export function MakeBackup({ vm, names = [], onClose }: { vm?: Pick<VM, 'name' | 'tenant' | 'disks'>; names?: readonly string[]; onClose: () => void }) {
  const refresh = useRefresh();
  const seesAll = useSeesAll();
  return (
    <FormDialog<BackupSpec & { tenant?: string }>
      title={vm ? `Back up ${vm.name}` : 'Create a backup'}
      schema={{ ...schemas.CreateBackup, properties: { ...schemas.CreateBackup.properties, tenant: { type: 'string', maxLength: 63 } } }}
      fields={[
        ...(vm ? [] : [{ name: 'vm_name', label: 'VM', suggestions: names }, ...(seesAll ? [{ name: 'tenant', label: 'Its tenant', hint: 'Where several tenants have a VM of this name' }] : [])]),
        {
          name: 'backup_type',
          label: 'Reads',
          options: [
            { value: 'full', label: 'The whole disk' },
            { value: 'incremental', label: 'What has changed since the backup before' },
          ],
          hint: 'Either can be restored by itself. Where the changes are not known, everything is read.',
        },
        { name: 'retention_days', label: 'Expires after days', hint: 'Never, when empty or 0' },
        { name: 'description', label: 'Description' },
      ]}
      values={{ backup_type: 'full', vm_name: vm?.name }}
      prepare={(input) => (vm ? { ...input, vm_name: vm.name } : input)}
      action="Create the backup"
      onClose={onClose}
      onSubmit={async ({ tenant, ...input }) => {
        await api.POST('/api/backups', { params: { query: vm ? { tenant: vm.tenant ?? '' } : tenant ? { tenant } : {} }, body: input });
        toast(`The backup of ${input.vm_name} is under way.`, 'info');
        onClose();
        await refresh();
      }}
    >
      {vm && vm.disks.length > 0 && <p className="muted small">The backup has the system disk only, and not {vm.disks.map((d) => d.name).join(', ')}.</p>}
    </FormDialog>
  );
}

/** What the form asks for beside the request. */
interface Restore extends Omit<RestoreSpec, 'target_vm_name'> {
  where: 'new' | 'place';
  target_vm_name?: string;
}

const restoreSchema: Schema = {
  ...schemas.RestoreBackup,
  // Which fields are asked for depends on what is restored.
  required: [],
  properties: { ...schemas.RestoreBackup.properties, where: { type: 'string', enum: ['new', 'place'], default: 'new' }, target_vm_name: { ...(schemas.RestoreBackup.properties?.['target_vm_name'] as Schema), type: 'string' } },
};

export function RestoreBackup({ backup, onClose, onBegun }: { backup: Backup; onClose: () => void; onBegun?: (vm: string) => void }) {
  const refresh = useRefresh();
  return (
    <FormDialog<Restore>
      title={`Restore the backup of ${backup.vm_name}`}
      schema={restoreSchema}
      fields={[
        {
          name: 'where',
          label: 'As',
          options: [
            { value: 'new', label: 'A new VM' },
            { value: 'place', label: `${backup.vm_name} itself, in place` },
          ],
        },
        { name: 'target_vm_name', label: 'Name of the new VM', hint: '', when: (d) => d['where'] === 'new' },
        { name: 'restore_config', label: 'Settings, too', hint: 'Processors, memory, labels, tags and description', when: (d) => d['where'] === 'place' },
      ]}
      values={{ backup_id: backup.id, target_vm_name: `${backup.vm_name}-restored`.slice(0, 63) }}
      prepare={(input) => ({ ...input, backup_id: backup.id })}
      preview={(input) =>
        input.where === 'place' ? (
          <Notice tone="warn">
            {backup.vm_name} gets the disk of <DateTime at={backup.created} />: what was written since is lost. It must be stopped and have no snapshots. Until the restore is finished, it keeps the disk that it has.{' '}
            {backup.left_out.length > 0 && `Its other disks stay as they are: the backup does not have them.`}
          </Notice>
        ) : (
          <Notice tone="info">
            A new VM with a disk of {bytes(backup.disk_bytes)} as at <DateTime at={backup.created} />, with the network policy that {backup.vm_name} had. {backup.vm_name} stays as it is. {leftOutText(backup)}
          </Notice>
        )
      }
      action="Restore"
      onClose={onClose}
      onSubmit={async ({ where, target_vm_name, restore_config, backup_id }) => {
        const job = await (
          where === 'new'
            ? api.POST('/api/backups/restore', { body: { backup_id, target_vm_name: target_vm_name ?? '', restore_config: true, restore_disks: true, restore_state: false } })
            : api.POST('/api/backups/restore', { body: { backup_id, target_vm_name: null, restore_config, restore_disks: true, restore_state: false } })
        );
        toast(`The restore of ${job.data?.vm_name ?? backup.vm_name} is under way.`, 'info');
        onClose();
        onBegun?.(job.data?.vm_name ?? backup.vm_name);
        await refresh();
      }}
    />
  );
}

export function ProtectBackup({ backup, onClose }: { backup: Backup; onClose: () => void }) {
  const refresh = useRefresh();
  return (
    <FormDialog<{ until: string }>
      title={`Protect the backup of ${backup.vm_name}`}
      schema={schemas.ProtectBackup}
      fields={[{ name: 'until', label: 'Until', hint: 'By this browser’s clock. At most ten years ahead, and later than before.' }]}
      {...(backup.protected_until && { values: { until: backup.protected_until } })}
      action="Protect it"
      onClose={onClose}
      onSubmit={async (input) => {
        await api.POST('/api/backups/{id}/protect', { params: { path: { id: backup.id } }, body: input });
        toast('The backup is protected.');
        onClose();
        await refresh();
      }}
    >
      <Notice tone="warn">Nobody can remove the backup before that time, not even an admin. This cannot be taken back.</Notice>
    </FormDialog>
  );
}
