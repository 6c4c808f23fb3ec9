/** Restoring a backup to a new volume, step by step. The backup and the job are in the address: a reload goes on where one was. */
import { useEffect, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { restoreFocus } from '../../ui/dialog';
import { Card, Facts } from '../../ui/facts';
import { Form } from '../../ui/form';
import { Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { ApiError, atField } from '../../ui/problem';
import { Stages } from '../../ui/progress';
import { bytes, exactSize } from '../../ui/size';
import { Table } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { Absent, loaded } from '../absent';
import { api, schemas, useSeesAll, type Backup, type BackupRestoreSpec, type Policy } from '../api';
import { Progress, useJobPage } from '../jobs';
import { restorePath, useBackends, useBuckets, volumePath } from '../links';
import { useLive, useRefresh } from '../live';
import { resourceName } from '../names';
import { bytesAt } from '../refused';
import { restorable, underWay } from '../states';
import { policyText, unready, usePolicies } from '../volumes/create';
import { checked, sizeField } from '../volumes/sizes';
import { backupColumns, Verified } from './columns';
import { useBackup, useSource } from './detail';

const list = { title: 'Backups', href: '/backups' };
const steps = ['Backup', 'New volume', 'Review', 'Restore'] as const;

function Steps({ at, ended = false, details }: { at: number; ended?: boolean; details: readonly string[] }) {
  return (
    <Stages
      label="Steps of the restore"
      stages={steps.map((title, i) => {
        const done = i < at || ended;
        return { title, state: done ? 'done' : i === at ? 'now' : 'next', tone: done ? 'ok' : i === at ? 'info' : 'idle', detail: details[i] ?? '', current: i === at && !ended };
      })}
    />
  );
}

/** What is asked for. */
type Plan = Pick<BackupRestoreSpec, 'name' | 'size_bytes' | 'policy'>;

const asked: readonly string[] = ['name', 'size_bytes', 'policy'] satisfies (keyof Plan)[];

export function Restore() {
  const [backup] = useParam('backup', '');
  const [job] = useParam('job', '');
  const [typed, setTyped] = useState<{ backup: string; plan: Plan }>();
  if (job !== '') return <Restoring job={job} backup={backup} />;
  if (backup === '') return <Choose />;
  return <RestoreOf key={backup} id={backup} plan={typed?.backup === backup ? typed.plan : {}} onPlan={(plan) => setTyped({ backup, plan })} />;
}

function Choose() {
  const seesAll = useSeesAll();
  const buckets = useBuckets().data;
  const pages = usePages(['backups', 'list', 'completed'], (cursor, signal) => page(api.GET('/backups', { params: { query: { state: 'completed', cursor } }, signal })));
  const left = ['state', 'mode', 'stored', ...(seesAll ? [] : ['tenant'])];
  return (
    <Page title="Restore a backup" above={[list]} lead="Choose the backup. It becomes a new volume; the volume that it is of stays as it is.">
      <div className="stack">
        <Steps at={0} details={[]} />
        <Card flush>
          <Table
            label="Backups to restore"
            noun="backup"
            columns={backupColumns(buckets).filter((c) => !left.includes(c.id))}
            pages={{ ...pages, rows: pages.rows?.filter(restorable) }}
            rowKey={(b) => b.id}
            href={restorePath}
            empty={{ icon: 'clock', title: 'There is no backup to restore', text: 'Only backups that are completed and have data can be restored.' }}
          />
        </Card>
      </div>
    </Page>
  );
}

function RestoreOf({ id, plan, onPlan }: { id: string; plan: Plan; onPlan: (plan: Plan) => void }) {
  const query = useBackup(id);
  const policies = usePolicies();
  const b = loaded(query);
  const [reviewing, setReviewing] = useState(false);
  const [refused, setRefused] = useState<unknown>();
  // The button that leads to another step goes with its step.
  useEffect(restoreFocus, [reviewing]);
  // The form knows its choices from the beginning.
  if (!b || !policies.data) return <Absent noun="backup" list={list} query={b ? policies : query} />;
  const text = `${b.volume_name}, ${bytes(b.size_bytes)}`;
  return (
    <Page title={`Restore the backup of ${b.volume_name}`} above={[list]} lead={<>It holds what {b.volume_name} had on <DateTime at={b.created_at} />.</>}>
      <div className="stack">
        <Steps at={reviewing ? 2 : 1} details={[text, reviewing ? (plan.name ?? 'named by the gateway') : '']} />
        {!restorable(b) ? (
          <Notice tone="bad">{b.mode === 'manifest' ? 'This backup has no data. Only the description of the volume was kept.' : `The backup is ${b.state}. Only one that is completed can be restored.`}</Notice>
        ) : reviewing ? (
          <Review
            backup={b}
            plan={plan}
            policy={policies.data.find((p) => p.name === plan.policy)}
            onBack={(why) => {
              setRefused(why);
              setReviewing(false);
            }}
          />
        ) : (
          <Settings
            backup={b}
            plan={plan}
            policies={policies.data}
            refused={refused}
            onDone={(to) => {
              onPlan(to);
              setReviewing(true);
            }}
          />
        )}
      </div>
    </Page>
  );
}

function Settings({ backup: b, plan, policies, refused, onDone }: { backup: Backup; plan: Plan; policies: readonly Policy[]; refused: unknown; onDone: (plan: Plan) => void }) {
  const backends = useBackends().data;
  const source = useSource(b);
  const backendOf = (p: Policy | undefined) => backends?.find((x) => x.id === p?.backend_id);
  return (
    <Card title="New volume">
      <Form<Plan>
        schema={schemas.RestoreBackup}
        fields={[
          { name: 'name', label: 'Name', hint: `Unique within ${b.tenant_id ? `the tenant ${b.tenant_id}` : 'its tenant'}. Empty: it is made from ${b.volume_name} and the time` },
          checked(sizeField('size_bytes', 'Size', { hint: `At least ${bytes(b.size_bytes)}, which it is when empty` }), (size) => (size < b.size_bytes ? `Must be at least ${exactSize(b.size_bytes)}.` : undefined)),
          {
            name: 'policy',
            label: 'Policy',
            hint: 'Says in which backend the new volume is made',
            options: [
              { value: '', label: source ? `where ${source.name} is${source.policy ? `: by the policy ${source.policy}` : ''}` : 'the one called default' },
              ...policies.filter((p) => p.kind === 'block').map((p) => ({ value: p.name, label: `${policyText(p)}, in ${backendOf(p)?.name ?? 'a backend that is not known'}` })),
            ],
          },
        ]}
        values={plan}
        refused={refused}
        warning={(input) => unready(backendOf(policies.find((p) => p.name === input.policy)))}
        action="Review"
        onSubmit={(input) => {
          onDone(input);
          return Promise.resolve();
        }}
      />
    </Card>
  );
}

function Review({ backup: b, plan, policy, onBack }: { backup: Backup; plan: Plan; policy: Policy | undefined; onBack: (why?: unknown) => void }) {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const backends = useBackends().data;
  const source = useSource(b);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>();
  const restore = async () => {
    setBusy(true);
    setFailure(undefined);
    try {
      const { job_id } = await atField(body(api.POST('/backups/{id}/restore', { params: { path: { id: b.id } }, body: { ...plan, in_place: false, confirm: false } })), bytesAt('size_bytes'));
      await refresh();
      navigate(`${restorePath(b)}&job=${encodeURIComponent(job_id)}`, { replace: true });
    } catch (e) {
      // What is wrong with a field is said at the field.
      if (e instanceof ApiError && asked.includes(e.field ?? '')) onBack(e);
      else setFailure(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Card title="What is made">
        <Facts
          facts={[
            ['Backup', <>{b.volume_name}, <DateTime at={b.created_at} /></>],
            ['Verified', <Verified key="v" backup={b} />],
            ['New volume', plan.name ?? `named by the gateway, from ${b.volume_name} and the time`],
            ['Size', bytes(plan.size_bytes ?? b.size_bytes)],
            ['Policy', policy ? `${policy.name}, in ${backends?.find((x) => x.id === policy.backend_id)?.name ?? 'a backend that is not known'}` : source ? `as ${source.name}` : 'default'],
            b.tenant_id !== '' && ['Tenant', b.tenant_id],
          ]}
        />
      </Card>
      {b.verification?.ok === false && <Notice tone="warn">The last check found that this backup is not what it should be. The restore compares what it reads, and fails if it is damaged.</Notice>}
      <Notice tone="info">{source ? `${source.name} and its other backups stay as they are.` : 'The other backups stay as they are.'}</Notice>
      {failure !== undefined && <Failure error={failure} />}
      <div className="row">
        <button type="button" className="btn" disabled={busy} onClick={() => onBack()}>
          Back
        </button>
        <button type="button" className="btn btn-primary" disabled={busy} onClick={() => void restore()}>
          {busy ? 'Working…' : 'Restore to a new volume'}
        </button>
      </div>
    </>
  );
}

function Restoring({ job: id, backup }: { job: string; backup: string }) {
  const { job, first } = useJobPage(id);
  const { names } = useLive();
  if (!job) return <Absent noun="job" list={{ title: 'Jobs', href: '/jobs' }} query={first} />;
  const volume = resourceName(job.resource, names);
  const done = job.state === 'succeeded';
  return (
    <Page title={`Restoring ${volume}`} above={[list]} lead="The job goes on when this page is closed.">
      <div className="stack">
        <Steps at={3} ended={done} details={['', volume, '', '']} />
        <Progress job={job} />
        <div role="status">{done && <Notice tone="ok">{volume} is ready. It holds what the backup holds.</Notice>}</div>
        <div className="row">
          {!done && !underWay(job) && (
            <Link href={restorePath({ id: backup })} className="btn">
              Try again
            </Link>
          )}
          <Link href={volumePath({ id: job.resource.id })} className={`btn ${done ? 'btn-primary' : ''}`}>
            Open {volume}
          </Link>
        </div>
      </div>
    </Page>
  );
}
