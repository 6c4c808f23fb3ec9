/** A backup: what it holds, how it was uploaded, what its check found, and its jobs. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { body, page } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Tabs } from '../../ui/tabs';
import { DateTime, EndTime } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { Allowed, api, type Backup } from '../api';
import { Busy, JobTable } from '../jobs';
import { backupPath, jobPath, restorePath, useBuckets, volumePath } from '../links';
import { BackupStatus, consistencyText, restorable, underWay } from '../states';
import { useBackupActions } from './actions';
import { BucketName, uploadText, Verified } from './columns';

const list = { title: 'Backups', href: '/backups' };

export const useBackup = (id: string) =>
  useQuery({ queryKey: ['backups', 'one', id], queryFn: ({ signal }) => body(api.GET('/backups/{id}', { params: { path: { id } }, signal })), refetchInterval: 3_000 });

/** What a check has compared, by its method. */
const compared: Record<NonNullable<Backup['verification']>['method'], string> = {
  stored: 'what is in the bucket with what was uploaded',
  source: 'what is in the bucket with the snapshot',
  restore: 'what is in the bucket with a volume that was made of it',
};

export function BackupDetail({ id }: { id: string }) {
  const { actions, dialog } = useBackupActions();
  const jobs = usePages(['jobs', 'of', id], (cursor, signal) => page(api.GET('/jobs', { params: { query: { resource: id, cursor } }, signal })), { refreshSeconds: 3 });
  const query = useBackup(id);
  const b = loaded(query);
  if (!b) {
    return (
      <Absent noun="backup" list={list} query={query}>
        It may have expired or been deleted, or belong to another tenant.
      </Absent>
    );
  }
  const job = jobs.rows?.find(underWay);
  const v = b.verification;
  const more = actions(b).filter((a) => a.label !== 'Restore…');
  return (
    <Page
      title={`Backup of ${b.volume_name}`}
      above={[list]}
      badge={<BackupStatus backup={b} />}
      lead={
        <>
          {b.mode === 'data' ? `The volume of ${bytes(b.size_bytes)} with its data` : 'A description of the volume, without data'}, as of <DateTime at={b.created_at} />
          {b.tenant_id && `, of the tenant ${b.tenant_id}`}
        </>
      }
      actions={
        <>
          {restorable(b) && (
            <Allowed operation="RestoreBackup">
              <Link href={restorePath(b)} className="btn btn-primary">
                Restore…
              </Link>
            </Allowed>
          )}
          <Menu label={`Actions for the backup of ${b.volume_name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={more} />
        </>
      }
    >
      <div className="stack">
        {job && <Busy key={job.id} job={job} />}
        {b.error !== '' && (
          <Notice tone="bad">
            <strong>{b.state === 'failed' ? 'It could not be made. Delete it, and make another one.' : 'Something went wrong the last time.'}</strong> {b.error}
          </Notice>
        )}
        {v && !v.ok && (
          <Notice tone="bad">
            <strong>The check found that the backup is not what it should be.</strong> {v.detail}. Make another backup.
          </Notice>
        )}
        <Tabs
          label={`Parts of the backup of ${b.volume_name}`}
          inAddress
          tabs={[
            { id: 'overview', label: 'Overview', content: () => <Summary backup={b} /> },
            {
              id: 'jobs',
              label: 'Jobs',
              content: () => (
                <Card flush>
                  <JobTable at="jobs." label={`Jobs of the backup of ${b.volume_name}`} pages={jobs} />
                </Card>
              ),
            },
          ]}
        />
      </div>
      {dialog}
    </Page>
  );
}

function Summary({ backup: b }: { backup: Backup }) {
  const buckets = useBuckets().data;
  const volume = useSource(b);
  const v = b.verification;
  return (
    <div className="grid">
      <Card title="Content">
        <Facts
          facts={[
            ['Volume', volume ? <Link key="v" href={volumePath(volume)}>{volume.name}</Link> : `${b.volume_name}, which is gone`],
            ['Mode', b.mode === 'data' ? 'data: with the content of the volume' : 'manifest: what the volume is, without its content'],
            ['Size', bytes(b.size_bytes)],
            b.mode === 'data' && ['Moment', consistencyText(b.consistency)],
            ['Checksum', b.checksum ? <Copyable key="c" text={b.checksum} /> : <span key="c" className="muted">not known</span>],
            ['Encrypted', b.encrypted ? `with the key ${b.key_ref ?? 'that is not known'}` : 'no'],
          ]}
        />
      </Card>
      <Card title="Upload">
        <Facts
          facts={[
            ['Upload', uploadText(b)],
            b.full_reason !== '' && ['Why full', b.full_reason],
            b.parent !== '' && ['Compared with', <Link key="p" href={backupPath({ id: b.parent })}>the backup before</Link>],
            ['Added', `${bytes(b.stored_bytes)} to the bucket, after compression`],
            ['Bucket', <BucketName key="b" id={b.bucket_id} buckets={buckets} />],
            ['Object', b.object_key ? <Copyable key="o" text={b.object_key} /> : <span key="o" className="muted">not known yet</span>],
          ]}
        />
      </Card>
      <Card title="Verification">
        <Facts
          facts={[
            ['Outcome', <Verified key="o" backup={b} />],
            v !== undefined && ['Compared', compared[v.method]],
            v !== undefined && ['Found', v.detail],
            v !== undefined && v.job_id !== '' && ['Job', <Link key="j" href={jobPath({ id: v.job_id })}>the job that checked it</Link>],
          ]}
        />
      </Card>
      <Card title="Life">
        <Facts
          facts={[
            ['Tenant', b.tenant_id || <span key="t" className="muted">none</span>],
            ['Created', <DateTime key="c" at={b.created_at} />],
            ['Finished', b.finished_at ? <DateTime key="f" at={b.finished_at} /> : <span key="f" className="muted">not yet</span>],
            ['Expires', <EndTime key="e" at={b.expires_at} never="not by age" />],
            ['ID', <Copyable key="i" text={b.id} />],
          ]}
        />
      </Card>
    </div>
  );
}

/** The volume that a backup is of, unless it is gone. */
export const useSource = (b: Pick<Backup, 'volume_id'>) =>
  useQuery({ queryKey: ['volumes', 'source', b.volume_id], queryFn: ({ signal }) => body(api.GET('/volumes/{id}', { params: { path: { id: b.volume_id } }, signal })), retry: false }).data;
