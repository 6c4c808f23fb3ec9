/** Jobs: work that takes long, its progress, and what became of it. */
import { useQuery, useQueryClient, type UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Copyable } from '../ui/copy';
import { Card, Facts } from '../ui/facts';
import { Notice } from '../ui/notice';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { usePages, wholeList, type Pages } from '../ui/paging';
import { Meter } from '../ui/progress';
import { Choice, Table, type Column } from '../ui/table';
import { DateTime, Time } from '../ui/time';
import { useWatched } from '../ui/watch';
import { Absent } from './absent';
import { api, basePath, useMay, useSeesAll, type Job, type JobState } from './api';
import { jobPath, resourcePath } from './links';
import { changedByJobs, useLive, useRefresh } from './live';
import { jobKinds, jobTitle, resourceName, type Names } from './names';
import { JobStatus, jobStates, jobText, underWay } from './states';

const JobMeter = ({ job }: { job: Job }) => <Meter progress={job.progress} failed={job.state === 'failed'} />;

/** The code for programs, and the sentence for people. */
function JobFailure({ job }: { job: Job }) {
  if (!job.error) return null;
  return (
    <span className="wide-cell">
      {job.error.message} <code className="small">{job.error.code}</code>
    </span>
  );
}

const columnsWith = (names: Names): readonly Column<Job>[] => [
  { id: 'kind', header: 'Job', cell: (j) => jobTitle(j, names), sort: (j) => jobTitle(j, names) },
  { id: 'state', header: 'State', cell: (j) => <JobStatus job={j} />, sort: (j) => jobText(j).text },
  { id: 'progress', header: 'Progress', cell: (j) => <JobMeter job={j} />, sort: (j) => j.progress, text: () => '' },
  { id: 'error', header: 'Error', cell: (j) => <JobFailure job={j} />, text: (j) => `${j.error?.code ?? ''} ${j.error?.message ?? ''}` },
  { id: 'actor', header: 'By', cell: (j) => j.actor, sort: (j) => j.actor },
  { id: 'created', header: 'Began', cell: (j) => <Time at={j.created_at} />, sort: (j) => j.created_at, text: () => '' },
  { id: 'tenant', header: 'Tenant', cell: (j) => j.tenant, sort: (j) => j.tenant },
  { id: 'attempt', header: 'Attempt', cell: (j) => count(j.attempt), sort: (j) => j.attempt, text: () => '', end: true, hidden: true },
];

/** Asks, and then asks a job to end. */
export function useCancel(): (job: Job) => void {
  const confirm = useConfirm();
  const refresh = useRefresh();
  const { names } = useLive();
  return (job) =>
    confirm({
      title: `Cancel “${jobTitle(job, names)}”?`,
      body: <p>The job ends as soon as it can. What it did is undone as far as that is safe.</p>,
      action: 'Cancel the job',
      danger: true,
      run: async () => {
        await api.POST('/jobs/{id}/cancel', { params: { path: { id: job.id } } });
        await refresh();
      },
      done: 'The job was asked to end.',
    });
}

export function JobTable({ label, pages, brief = false, tools, at = '' }: { label: string; pages: Pages<Job>; brief?: boolean; tools?: ReactNode; at?: string }) {
  const cancel = useCancel();
  const mayCancel = useMay()('CancelJob');
  const seesAll = useSeesAll();
  const { names } = useLive();
  const columns = columnsWith(names);
  return (
    <Table
      brief={brief}
      at={at}
      label={label}
      noun="job"
      columns={seesAll ? columns : columns.filter((c) => c.id !== 'tenant')}
      pages={pages}
      rowKey={(j) => j.id}
      href={jobPath}
      actions={(j) => (underWay(j) && mayCancel ? [{ label: 'Cancel…', run: () => cancel(j), danger: true }] : [])}
      tools={tools}
      empty={{ icon: 'activity', title: 'There are no jobs', text: 'Each change of a volume, a snapshot or an OSD is a job. Those that have ended are listed for some time.' }}
    />
  );
}

/** A few jobs that are loaded already. */
export const JobList = ({ label, jobs }: { label: string; jobs: readonly Job[] }) => <JobTable brief label={label} pages={wholeList([...jobs])} />;

export function Jobs() {
  const [state, setState] = useParam<JobState | ''>('state', '', jobStates);
  const [kind, setKind] = useParam('kind', '');
  const query = { ...(state && { state }), ...(kind && { kind }) };
  const pages = usePages(['jobs', 'list', query], (cursor, signal) => page(api.GET('/jobs', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 3 });
  return (
    <Page title="Jobs" lead="Each change is a job. It goes on when the browser is closed, and after a restart of the gateway.">
      <Card flush>
        <JobTable
          label="Jobs"
          pages={pages}
          tools={
            <>
              <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...jobStates.map((s) => ({ value: s, label: s }))]} onChange={setState} />
              <Choice label="Kind" value={kind} options={[{ value: '', label: 'All kinds' }, ...jobKinds.map((k) => ({ value: k, label: k }))]} onChange={setKind} />
            </>
          }
        />
      </Card>
    </Page>
  );
}

/** A job as it changes. Undefined until the service has told of it. */
export function useJob(id: string): Job | undefined {
  const queries = useQueryClient();
  return useWatched<Job>(`${basePath}/jobs/${encodeURIComponent(id)}/watch`, id, underWay, () => {
    for (const key of changedByJobs) void queries.invalidateQueries({ queryKey: [key] });
  });
}

/** What a job is doing now to what a page shows. */
export function Busy({ job: listed }: { job: Job }) {
  const job = useJob(listed.id) ?? listed;
  const { names } = useLive();
  const cancel = useCancel();
  const mayCancel = useMay()('CancelJob');
  if (!underWay(job)) return null;
  return (
    <Notice
      tone="info"
      action={
        mayCancel && (
          <button type="button" className="btn btn-small" onClick={() => cancel(job)}>
            Cancel…
          </button>
        )
      }
    >
      <div className="stack-tight" role="status">
        <span>
          <Link href={jobPath(job)}>
            <strong>{jobTitle(job, names)}</strong>
          </Link>
          , {jobText(job).text}
        </span>
        <JobMeter job={job} />
      </div>
    </Notice>
  );
}

const list = { title: 'Jobs', href: '/jobs' };

/** How far a job is, why it failed, and what it waits for. */
export function Progress({ job }: { job: Job }) {
  const { maintenance } = useLive();
  const { tone } = jobText(job);
  return (
    <>
      {job.error && (
        <Notice tone={tone}>
          <strong>{tone === 'warn' ? 'It was cancelled.' : 'It failed.'}</strong> {job.error.message}
        </Notice>
      )}
      {maintenance?.paused && job.state === 'queued' && <Notice tone="warn">It waits until jobs are resumed.</Notice>}
      <Card title="Progress">
        <div role="status">
          <JobMeter job={job} />
        </div>
      </Card>
    </>
  );
}

/** A job by its id: what was read at first, until its stream tells of it. */
export function useJobPage(id: string): { job: Job | undefined; first: UseQueryResult<Job> } {
  const first = useQuery({ queryKey: ['jobs', 'one', id], queryFn: ({ signal }) => body(api.GET('/jobs/{id}', { params: { path: { id } }, signal })) });
  return { job: useJob(id) ?? first.data, first };
}

export function JobDetail({ id }: { id: string }) {
  const { job, first } = useJobPage(id);
  const { names } = useLive();
  const cancel = useCancel();
  const mayCancel = useMay()('CancelJob');
  if (!job) {
    return (
      <Absent noun="job" list={list} query={first}>
        Jobs that have ended are kept for some time only. It may also belong to another tenant.
      </Absent>
    );
  }
  const path = resourcePath(job.resource.type, job.resource.id);
  return (
    <Page
      title={jobTitle(job, names)}
      above={[list]}
      badge={<JobStatus job={job} />}
      actions={
        mayCancel &&
        underWay(job) && (
          <button type="button" className="btn btn-danger" onClick={() => cancel(job)}>
            Cancel the job…
          </button>
        )
      }
    >
      <div className="stack">
        <Progress job={job} />
        <Card title="Job">
          <Facts
            facts={[
              ['Kind', <code key="k">{job.kind}</code>],
              ['About', path ? <Link key="v" href={path}>{resourceName(job.resource, names)}</Link> : resourceName(job.resource, names)],
              job.error !== undefined && ['Error code', <code key="c">{job.error.code}</code>],
              ['Asked for by', job.actor],
              job.tenant !== '' && ['Tenant', job.tenant],
              ['Asked for', <DateTime key="a" at={job.created_at} />],
              ['Started', job.started_at ? <DateTime key="s" at={job.started_at} /> : <span key="s" className="muted">not yet</span>],
              ['Ended', job.finished_at ? <DateTime key="f" at={job.finished_at} /> : <span key="f" className="muted">not yet</span>],
              ['Attempts', count(job.attempt)],
              ['ID', <Copyable key="i" text={job.id} />],
            ]}
          />
        </Card>
      </div>
    </Page>
  );
}
