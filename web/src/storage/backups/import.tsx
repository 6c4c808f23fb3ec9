/** Taking in the backups that a bucket holds and the gateway does not know, as after the loss of its database. */
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import { FormDialog } from '../../ui/form';
import type { Schema } from '../../ui/schema';
import { api, schemas, type BackupImport, type Bucket } from '../api';
import { bucketLabel, jobPath } from '../links';
import { useRefresh } from '../live';

interface Input extends BackupImport {
  bucket: string;
}

const schema: Schema = { ...schemas.ImportBackups, required: ['bucket'], properties: { bucket: { type: 'string', minLength: 1 }, ...schemas.ImportBackups.properties } };

export function ImportBackups({ buckets, onClose }: { buckets: readonly Bucket[]; onClose: () => void }) {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const usable = buckets.filter((b) => b.state === 'bound');
  return (
    <FormDialog<Input>
      title="Import from a bucket"
      schema={schema}
      fields={[
        { name: 'bucket', label: 'Bucket', options: usable.map((b) => ({ value: b.id, label: bucketLabel(b) })), hint: 'One that was made elsewhere is taken in under Buckets first' },
        { name: 'key_ref', label: 'Key', hint: 'The entry of the gateway’s setting backup-keys, for backups that are encrypted' },
        { name: 'tenant_id', label: 'Tenant', hint: 'Only the backups of this tenant. Empty: of all, or of the tenant that the bucket belongs to' },
      ]}
      values={{ bucket: usable[0]?.id }}
      warning={() => (usable.length === 0 ? 'There is no bucket that backups can be read from.' : undefined)}
      action="Import the backups"
      onClose={onClose}
      onSubmit={async ({ bucket, ...input }) => {
        const { job_id } = await body(api.POST('/buckets/{id}/import', { params: { path: { id: bucket } }, body: input }));
        onClose();
        await refresh();
        navigate(jobPath({ id: job_id }));
      }}
    >
      <p>Backups that the gateway knows already stay as they are. The bucket is only read.</p>
    </FormDialog>
  );
}
