/** Maintenance: whether jobs are started, and the switch. */
import { useQueryClient } from '@tanstack/react-query';
import { body } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Card, Facts } from '../ui/facts';
import { Notice } from '../ui/notice';
import { count, plural } from '../ui/number';
import { Status } from '../ui/status';
import { Time } from '../ui/time';
import { Allowed, api, type Maintenance } from './api';

/** Asks, and then pauses or resumes. */
function useSwitch(): (m: Maintenance) => void {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const set = async (paused: boolean) => {
    await body(api.POST('/maintenance', { body: { paused } }));
    await queries.invalidateQueries({ queryKey: ['live'] });
  };
  return (m) =>
    m.paused
      ? confirm({
          title: 'Resume jobs?',
          body: <p>{m.queued === 0 ? 'No job waits.' : `${plural(m.queued, 'job waits', 'jobs wait')}, and ${m.queued === 1 ? 'starts' : 'start'} as there is room.`}</p>,
          action: 'Resume jobs',
          run: () => set(false),
          done: 'Jobs start again.',
        })
      : confirm({
          title: 'Pause jobs?',
          body: (
            <>
              <p>No more jobs are started, on all replicas, until somebody resumes them. Volumes are used as before.</p>
              <p>{m.running === 0 ? 'No job runs now.' : `${plural(m.running, 'job that runs goes', 'jobs that run go')} on.`} What people ask for meanwhile waits.</p>
            </>
          ),
          action: 'Pause jobs',
          danger: true,
          run: () => set(true),
          done: 'No more jobs are started.',
        });
}

export function MaintenanceCard({ maintenance: m }: { maintenance: Maintenance }) {
  const ask = useSwitch();
  return (
    <Card
      title="Maintenance"
      actions={
        <Allowed operation="SetMaintenance">
          <button type="button" className={`btn btn-small ${m.paused ? 'btn-primary' : ''}`} onClick={() => ask(m)}>
            {m.paused ? 'Resume jobs…' : 'Pause jobs…'}
          </button>
        </Allowed>
      }
    >
      <Facts
        facts={[
          [
            'Jobs',
            m.paused ? (
              <Status key="p" tone="warn" icon="pause">
                paused
              </Status>
            ) : (
              <Status key="s" tone="ok">
                are started
              </Status>
            ),
          ],
          m.since !== null && ['Since', <Time key="t" at={m.since} />],
          m.by !== '' && ['By', m.by],
          ['Running', count(m.running)],
          ['Waiting', count(m.queued)],
        ]}
      />
    </Card>
  );
}

/** On every page while jobs are paused: otherwise people wonder why nothing happens. */
export function PausedBanner({ maintenance: m }: { maintenance: Maintenance }) {
  const ask = useSwitch();
  return (
    <Notice
      tone="warn"
      action={
        <Allowed operation="SetMaintenance">
          <button type="button" className="btn btn-small" onClick={() => ask(m)}>
            Resume jobs…
          </button>
        </Allowed>
      }
    >
      <strong>Jobs are paused.</strong> {m.by !== '' && `${m.by} paused them `}
      {m.by !== '' && <Time at={m.since} />}
      {m.by !== '' && '. '}
      {m.queued === 0 ? 'None waits.' : `${plural(m.queued, 'job waits', 'jobs wait')}.`}
    </Notice>
  );
}
