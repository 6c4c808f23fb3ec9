/** Jobs: work that takes long, its progress, and what became of it. */
import { useQueryClient } from '@tanstack/react-query';
import { page } from '../ui/client';
import { Card } from '../ui/facts';
import { Notice } from '../ui/notice';
import { Page } from '../ui/page';
import { usePages, wholeList, type Pages } from '../ui/paging';
import { reason } from '../ui/problem';
import { Meter } from '../ui/progress';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { useWatched } from '../ui/watch';
import { api, useMay, type Job } from './api';
import { VMLink } from './links';
import { JobState, jobTitle, underWay } from './states';

const columns: readonly Column<Job>[] = [
  { id: 'kind', header: 'Job', cell: (j) => jobTitle(j), sort: (j) => jobTitle(j) },
  { id: 'status', header: 'State', cell: (j) => <JobState job={j} />, sort: (j) => j.status },
  { id: 'progress', header: 'Progress', cell: (j) => <Meter progress={j.progress} failed={j.status === 'failed'} />, sort: (j) => j.progress, text: () => '' },
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
const useJob = (id: string, onEnd: () => void) => useWatched<Job>(`/api/jobs/${encodeURIComponent(id)}/events`, id, underWay, onEnd);

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
        {job && <Meter progress={job.progress} failed={job.status === 'failed'} />}
      </div>
    </Notice>
  );
}
