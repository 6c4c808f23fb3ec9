/** Backing up a volume. */
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import { FormDialog } from '../../ui/form';
import { api, schemas, type BackupSpec, type Bucket, type Volume } from '../api';
import { backupPath, bucketLabel, useBuckets } from '../links';
import { useRefresh } from '../live';
import { spanField } from '../spans';

/** The buckets that backups of what belongs to a tenant may go to. */
export const bucketsFor = (tenant: string, buckets: readonly Bucket[]) => buckets.filter((b) => b.state === 'bound' && (b.tenant_id === '' || b.tenant_id === tenant));

export function BackUp({ volume: v, onClose }: { volume: Volume; onClose: () => void }) {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const buckets = useBuckets().data;
  // The form knows its choices from the beginning.
  if (!buckets) return null;
  const usable = bucketsFor(v.tenant_id, buckets);
  const block = v.kind === 'block';
  const withData = (d: Record<string, unknown>) => d['mode'] === 'data';
  return (
    <FormDialog<BackupSpec>
      title={`Back up ${v.name}`}
      schema={schemas.CreateBackup}
      fields={[
        { name: 'bucket_id', label: 'Bucket', options: usable.map((b) => ({ value: b.id, label: bucketLabel(b) })), hint: 'Best one that is elsewhere than the volume' },
        {
          name: 'mode',
          label: 'What',
          options: [...(block ? [{ value: 'data', label: 'the volume with its data' }] : []), { value: 'manifest', label: 'a description of the volume, without data' }],
          hint: block ? '' : 'Volumes for files are backed up without their data',
        },
        { name: 'full', label: 'Upload everything', hint: 'Otherwise only what has changed since the last backup, where the storage can tell', when: withData },
        { name: 'key_ref', label: 'Key', hint: 'An entry of the gateway’s setting backup-keys. Empty: not encrypted', when: withData },
        { name: 'keep', label: 'Keep', hint: 'So many of the newest backups of this volume in the bucket; older ones are removed. Empty: all' },
        spanField('max_age_secs', 'Expires after', { hint: 'As in 30 days. Empty: never' }),
      ]}
      values={{ bucket_id: usable[0]?.id, mode: block ? 'data' : 'manifest' }}
      prepare={(input) => ({ ...input, volume_id: v.id })}
      warning={() => (usable.length === 0 ? `There is no bucket that backups of ${v.name} can go to. An operator makes one under Buckets.` : undefined)}
      action="Back up the volume"
      onClose={onClose}
      onSubmit={async (input) => {
        const { resource } = await body(api.POST('/backup-jobs', { body: input }));
        onClose();
        await refresh();
        navigate(backupPath({ id: resource.backup_id }));
      }}
    >
      <p>The backup has what the volume holds now. The volume may be used meanwhile.</p>
    </FormDialog>
  );
}
