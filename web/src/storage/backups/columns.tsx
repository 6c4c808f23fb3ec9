/** What the lists of backups show. */
import { Link } from 'wouter';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import type { Column } from '../../ui/table';
import { EndTime, Time } from '../../ui/time';
import type { Backup, Bucket } from '../api';
import { bucketLabel, bucketPath } from '../links';
import { BackupStatus } from '../states';

/** How a backup was uploaded. Nobody knows before it is complete. */
export const uploadText = (b: Pick<Backup, 'state' | 'incremental' | 'mode'>) => (b.mode === 'manifest' ? 'no data' : b.state !== 'completed' ? 'not known yet' : b.incremental ? 'incremental' : 'full');

/** What the newest check found. */
export function Verified({ backup: { verification: v } }: { backup: Pick<Backup, 'verification'> }) {
  if (!v) return <span className="muted">not yet</span>;
  return (
    <span className="nowrap">
      <Status tone={v.ok ? 'ok' : 'bad'}>{v.ok ? 'verified' : 'differs'}</Status> <Time at={v.at} />
    </span>
  );
}

export const BucketName = ({ id, buckets }: { id: string; buckets: readonly Bucket[] | undefined }) => {
  const bucket = buckets?.find((b) => b.id === id);
  return bucket ? <Link href={bucketPath(bucket)}>{bucketLabel(bucket)}</Link> : <span className="muted">{buckets ? 'gone' : 'not known'}</span>;
};

export const backupColumns = (buckets: readonly Bucket[] | undefined): readonly Column<Backup>[] => [
  {
    id: 'volume',
    header: 'Backup of',
    cell: (b) => b.volume_name,
    sort: (b) => b.volume_name,
    // The others of the volume have the same name.
    text: (b) => `${b.volume_name} of ${b.created_at}`,
  },
  { id: 'created', header: 'Made', cell: (b) => <Time at={b.created_at} />, sort: (b) => b.created_at, text: () => '' },
  { id: 'state', header: 'State', cell: (b) => <BackupStatus backup={b} />, sort: (b) => b.state },
  { id: 'mode', header: 'Mode', cell: (b) => b.mode, sort: (b) => b.mode, hidden: true },
  { id: 'upload', header: 'Upload', cell: uploadText, sort: uploadText },
  { id: 'size', header: 'Size', cell: (b) => <span className="nowrap">{bytes(b.size_bytes)}</span>, sort: (b) => b.size_bytes, text: () => '', end: true },
  { id: 'stored', header: 'Added', cell: (b) => <span className="nowrap">{bytes(b.stored_bytes)}</span>, sort: (b) => b.stored_bytes, text: () => '', end: true, hidden: true },
  { id: 'verified', header: 'Verified', cell: (b) => <Verified backup={b} />, sort: (b) => b.verification?.at ?? '', text: () => '' },
  { id: 'expires', header: 'Expires', cell: (b) => <EndTime at={b.expires_at} never="not by age" />, sort: (b) => b.expires_at ?? '', text: () => '' },
  { id: 'bucket', header: 'Bucket', cell: (b) => <BucketName id={b.bucket_id} buckets={buckets} />, text: (b) => buckets?.find((x) => x.id === b.bucket_id)?.name ?? '' },
  { id: 'tenant', header: 'Tenant', cell: (b) => b.tenant_id, sort: (b) => b.tenant_id },
];
