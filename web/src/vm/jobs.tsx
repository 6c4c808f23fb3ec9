/** Jobs: work that takes long, its progress, and what became of it. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { page } from '../ui/client';
import { Card } from '../ui/facts';
import { Notice } from '../ui/notice';
import { percent } from '../ui/number';
import { Page } from '../ui/page';
import { usePages, wholeList, type Pages } from '../ui/paging';
import { reason } from '../ui/problem';
import { Bar } from '../ui/progress';
import { useOwnSession, useSession } from '../ui/session';
import { useStream } from '../ui/stream';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { api, useMay, type Job } from './api';
import { VMLink } from './links';
import { JobState, jobTitle, underWay } from './states';

export function Meter({ job }: { job: Pick<Job, 'progress' | 'status'> }) {
  return (
    <span className="meter">
      <Bar parts={[{ label: 'percent done', value: Math.round(job.progress * 100), tone: job.status === 'failed' ? 'bad' : 'ok' }]} total={100} />
      <span className="muted small">{percent(job.progress)}</span>
    </span>
  );
}

const columns: readonly Column<Job>[] = [
  { id: 'kind', header: 'Job', cell: (j) => jobTitle(j), sort: (j) => jobTitle(j) },
  { id: 'status', header: 'State', cell: (j) => <JobState job={j} />, sort: (j) => j.status },
  { id: 'progress', header: 'Progress', cell: (j) => <Meter job={j} />, sort: (j) => j.progress, text: () => '' },
  { id: 'vm', header: 'VM', cell: (j) => <VMLink name={j.vm_name} tenant={j.tenant} />, text: (j) => j.vm_name ?? '' },
  { id: 'actor', header: 'By', cell: (j) => j.actor ?? <span className="muted">itself</span>, text: (j) => j.actor ?? '' },
  { id: 'created', header: 'Began', cell: (j) => <Time at={j.created} />, sort: (j) => j.created, text: () => '' },
  { id: 'error', header: 'Error', cell: (j) => j.error, text: (j) => j.error },
  { id: 'tenant', header: 'Tenant', cell: (j) => j.tenant ?? '', text: (j) => j.tenant ?? '', hidden: true },
];

/** Asks a job to end. */
export function useCancel(): (job: Pick<Job, 'id' | 'kind' | 'vm_name'>) => Promise<void> {
  const queries = useQueryClient();
  return async (job) => {
    try {
      await api.POST('/api/jobs/{job}/cancel', { params: { path: { job: job.id } } });
      toast(`${jobTitle(job)}: asked to end.`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await Promise.all(['live', 'jobs', 'vms', 'backups', 'images'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  };
}

export function JobTable({ label, pages, brief = false, at = '' }: { label: string; pages: Pages<Job>; brief?: boolean; at?: string }) {
  const cancel = useCancel();
  const mayCancel = useMay()('CancelJob');
  return (
    <Table
      brief={brief}
      at={at}
      label={label}
      noun="job"
      columns={columns}
      pages={pages}
      rowKey={(j) => j.id}
      actions={(j) => (underWay(j) && mayCancel ? [{ label: 'Cancel', run: () => void cancel(j), danger: true }] : [])}
      empty={{ icon: 'activity', title: 'Nothing is under way', text: 'Starts, clones, backups, restores, scans and new images are listed here for a day.' }}
    />
  );
}

/** A few jobs that are loaded already. */
export const JobList = ({ label, jobs }: { label: string; jobs: readonly Job[] }) => <JobTable brief label={label} pages={wholeList([...jobs])} />;

export function Jobs() {
  const pages = usePages(['jobs'], (cursor, signal) => page(api.GET('/api/jobs', { params: { query: { cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Page title="Jobs" lead="Work that takes long. At most one job at a time changes a VM. What has ended is listed for a day.">
      <Card flush>
        <JobTable label="Jobs" pages={pages} />
      </Card>
    </Page>
  );
}

/** A job as it changes. Undefined until the service has told of it. */
export function useJob(id: string | undefined, onEnd?: (job: Job) => void): Job | undefined {
  const session = useOwnSession();
  const { epoch } = useSession(session);
  const [job, setJob] = useState<Job>();
  const own = job?.id === id ? job : undefined;
  useStream({
    url: `/api/jobs/${encodeURIComponent(id ?? '')}/events`,
    epoch,
    // The stream ends with the job.
    enabled: id !== undefined && (own === undefined || underWay(own)),
    onMessage: (message) => {
      const told = JSON.parse(message.data) as Job;
      setJob(told);
      if (!underWay(told)) onEnd?.(told);
    },
    onUnauthorized: session.expire,
  });
  return own;
}

/** What a job is doing to a VM or an image now. */
export function Busy({ id, kind, name, what = 'VM' }: { id: string; kind: string; name: string; what?: 'VM' | 'image' }) {
  const queries = useQueryClient();
  const job = useJob(id, () => void Promise.all(['vms', 'live', 'backups', 'images'].map((key) => queries.invalidateQueries({ queryKey: [key] }))));
  const cancel = useCancel();
  const mayCancel = useMay()('CancelJob');
  const known = { kind: job?.kind ?? kind, vm_name: job?.vm_name ?? name };
  return (
    <Notice
      tone="info"
      action={
        mayCancel &&
        job &&
        underWay(job) && (
          <button type="button" className="btn btn-small" onClick={() => void cancel(job)}>
            Cancel
          </button>
        )
      }
    >
      <div className="stack-tight" role="status">
        <span>
          <strong>{jobTitle(known)}</strong>, {job ? job.status : 'asking how far it is'}. Until it has ended, nothing else can change this {what}.
        </span>
        {job && <Meter job={job} />}
      </div>
    </Notice>
  );
}
