import { describe, expect, it } from 'vitest';
import type { Job, VM, VMPolicy } from '../api';
import { make, stepsOf, type Calls, type Plan, type Step } from './making';

const job = (status: Job['status'], progress: number, error = ''): Job => ({ id: 'j', kind: 'vm.start', status, progress, error, created: '' });

/** A service that makes and starts a VM without trouble, unless it is told otherwise. */
function service(change: Partial<Calls> = {}) {
  const asked: string[] = [];
  let vm = { state: 'stopped', provisioned: false, node: '', last_error: '', job: { id: 'p', kind: 'vm.provision' } } as unknown as VM;
  const calls: Calls = {
    vm: () => Promise.resolve(vm),
    job: (id) => {
      asked.push(`job ${id}`);
      const first = asked.filter((a) => a === `job ${id}`).length === 1;
      if (!first) vm = { ...vm, provisioned: true, job: null, ...(id === 's' && { state: 'running' as const }) };
      return Promise.resolve(first ? job('running', 0.5) : job('completed', 1));
    },
    setPolicy: () => {
      asked.push('policy');
      return Promise.resolve({ status: 'applied', reason: '' } as VMPolicy);
    },
    start: () => {
      asked.push('start');
      return Promise.resolve('s');
    },
    ...change,
  };
  return { calls, asked };
}

async function run(calls: Calls, plan: Plan, signal = new AbortController().signal): Promise<(readonly Step[])[]> {
  const reports: (readonly Step[])[] = [];
  await make(calls, plan, (s) => reports.push(s), signal);
  return reports;
}

const plan: Plan = { policy: { ingress: { default: 'deny' } }, start: true };

describe('make', () => {
  it('starts the VM only after it was made and has its policy', async () => {
    const { calls, asked } = service();
    const reports = await run(calls, plan);
    expect(asked).toEqual(['job p', 'job p', 'policy', 'start', 'job s', 'job s']);
    expect(reports.at(-1)).toEqual([
      { id: 'make', state: 'done' },
      { id: 'policy', state: 'done', detail: 'The hypervisor has it.' },
      { id: 'start', state: 'done', detail: 'It is running.' },
    ]);
    expect(reports.some((r) => r[0]?.progress === 0.5)).toBe(true);
  });

  it('stops where something fails, and says why', async () => {
    const { calls, asked } = service({ job: () => Promise.resolve(job('failed', 0, 'there is no image nowhere')) });
    const reports = await run(calls, plan);
    expect(reports.at(-1)).toEqual([{ id: 'make', state: 'failed', detail: 'there is no image nowhere' }, { id: 'policy', state: 'waiting' }, { id: 'start', state: 'waiting' }]);
    expect(asked).toEqual([]);
  });

  it('does not start a VM whose policy cannot be enforced', async () => {
    const { calls, asked } = service({ setPolicy: () => Promise.resolve({ status: 'unsupported', reason: 'the network has no tap' } as VMPolicy) });
    const reports = await run(calls, plan);
    expect(reports.at(-1)?.slice(1)).toEqual([{ id: 'policy', state: 'failed', detail: 'the network has no tap' }, { id: 'start', state: 'waiting' }]);
    expect(asked).not.toContain('start');
  });

  it('leaves out what was not asked for', async () => {
    expect(stepsOf({ start: false }).map((s) => [s.id, s.state])).toEqual([
      ['make', 'waiting'],
      ['start', 'skipped'],
    ]);
    const { calls, asked } = service();
    await run(calls, { start: false });
    expect(asked).toEqual(['job p', 'job p']);
  });

  it('reports and begins nothing more once the page is left', async () => {
    const left = new AbortController();
    const { calls, asked } = service({
      job: () => {
        left.abort();
        return Promise.resolve(job('completed', 1));
      },
    });
    const reports = await run(calls, plan, left.signal);
    expect(reports).toHaveLength(1);
    expect(asked).toEqual([]);
  });
});
