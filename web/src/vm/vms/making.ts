/**
 * What becomes of a new VM after it was recorded: the hypervisor makes it, gets its network policy, and
 * starts it. Each step waits for the one before, since one job at a time changes a VM.
 */
import { reason } from '../../ui/problem';
import type { Job, VM, VMPolicy, VMPolicySpec } from '../api';
import { underWay } from '../states';

export type StepID = 'make' | 'policy' | 'start';

export interface Step {
  id: StepID;
  state: 'waiting' | 'running' | 'done' | 'failed' | 'skipped';
  /** The share that is done, where a job tells. */
  progress?: number;
  /** What came of it, or why it failed. */
  detail?: string;
}

/** What the steps ask of the service. */
export interface Calls {
  vm: () => Promise<VM>;
  /** The job as it is in a moment, or when it has ended. */
  job: (id: string) => Promise<Job>;
  setPolicy: (spec: VMPolicySpec) => Promise<VMPolicy>;
  /** Returns the job that starts the VM. */
  start: () => Promise<string | undefined>;
}

export interface Plan {
  policy?: VMPolicySpec | undefined;
  start: boolean;
}

export const stepsOf = (plan: Plan): Step[] => [{ id: 'make', state: 'waiting' }, ...(plan.policy ? [{ id: 'policy' as const, state: 'waiting' as const }] : []), { id: 'start', state: plan.start ? 'waiting' : 'skipped' }];

/** Follows a job to its end. */
async function follow(calls: Calls, id: string, tell: (job: Job) => void, signal: AbortSignal): Promise<void> {
  for (;;) {
    const job = await calls.job(id);
    if (signal.aborted) return;
    tell(job);
    if (job.status === 'completed') return;
    if (!underWay(job)) throw new Error(job.error || `The job was ${job.status}.`);
  }
}

/** Takes the steps one after the other, and reports all of them at each change. A failed step is the last. */
export async function make(calls: Calls, plan: Plan, report: (steps: readonly Step[]) => void, signal: AbortSignal): Promise<void> {
  let steps = stepsOf(plan);
  const change = (id: StepID, to: Omit<Step, 'id'>) => {
    steps = steps.map((s) => (s.id === id ? { id, ...to } : s));
    if (!signal.aborted) report(steps);
  };
  const take = async (id: StepID, what: () => Promise<string | undefined>): Promise<boolean> => {
    if (signal.aborted || !steps.some((s) => s.id === id && s.state === 'waiting')) return true;
    change(id, { state: 'running' });
    try {
      const detail = await what();
      change(id, { state: 'done', ...(detail && { detail }) });
      return true;
    } catch (e) {
      change(id, { state: 'failed', detail: reason(e) });
      return false;
    }
  };
  const progress = (id: StepID) => (job: Job) => change(id, { state: 'running', progress: job.progress });

  const made = await take('make', async () => {
    const vm = await calls.vm();
    if (vm.job) await follow(calls, vm.job.id, progress('make'), signal);
    const now = await calls.vm();
    if (!now.provisioned) throw new Error(now.last_error || 'The hypervisor has not made it.');
    return now.node && `On the host ${now.node}.`;
  });
  if (!made) return;
  const guarded = await take('policy', async () => {
    const { status, reason: why } = await calls.setPolicy(plan.policy ?? {});
    if (status === 'unsupported' || status === 'failed') throw new Error(why || 'The hypervisor cannot enforce it in this network.');
    return status === 'applied' ? 'The hypervisor has it.' : why;
  });
  if (!guarded) return;
  await take('start', async () => {
    const job = await calls.start();
    if (job) await follow(calls, job, progress('start'), signal);
    const vm = await calls.vm();
    return `It is ${vm.state}.`;
  });
}
