/** A campaign: its stages, the outcome for every device, and the actions on it. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Copyable } from '../../ui/copy';
import { Card, Facts, Tags } from '../../ui/facts';
import { Failure, Notice } from '../../ui/notice';
import { count, percent, plural } from '../../ui/number';
import { reason } from '../../ui/problem';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Bar, Stages, type Stage } from '../../ui/progress';
import { words } from '../../ui/status';
import { Choice, Table, type Column } from '../../ui/table';
import { DateTime, Time, duration } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, useMay, type Campaign, type CampaignDevice } from '../api';
import { devicePath, SiteLink } from '../links';
import { CampaignState, Outcome } from '../states';
import { outcomeParts, outcomes } from './outcomes';
import { countTargets, upTo } from './targets';
import { Trouble } from '../trouble';

const above = [{ title: 'Campaigns', href: '/campaigns' }];

export function CampaignDetail({ id }: { id: string }) {
  const path = { params: { path: { id } } };
  const campaign = useQuery({ queryKey: ['campaigns', 'one', id], queryFn: ({ signal }) => body(api.GET('/ota/campaigns/{id}', { ...path, signal })), refetchInterval: 3_000 });
  if (!campaign.data) {
    return (
      <Page title="Campaign" above={above}>
        {campaign.error ? <Failure error={campaign.error} retry={() => void campaign.refetch()} /> : <p className="muted">Loading…</p>}
      </Page>
    );
  }
  const c = campaign.data;
  return (
    <Page title={c.name} above={above} badge={<CampaignState campaign={c} />} lead={`Update to ${c.version}`} actions={<Decisions campaign={c} />}>
      <div className="stack">
        <Trouble of={{ subject: id }} />
        {c.paused_reason && (
          <Notice tone="warn">
            <strong>It waits for a decision:</strong> {c.paused_reason}. {advice(c)}
          </Notice>
        )}
        {c.rollout.phase !== 'idle' && (
          <Notice tone="info">
            {rolloutText(c)}
          </Notice>
        )}
        <Stages label="Stages" stages={stagesOf(c)} />
        {c.status !== 'draft' && <Counts campaign={c} />}
        <div className="grid">
          <Card title="Update">
            <Facts
              facts={[
                ['Version', c.version],
                ['Artifact', <Copyable key="u" text={c.url} />],
                ['SHA-256', <Copyable key="h" text={c.sha256} />],
                c.size !== undefined && c.size > 0 && ['Size', `${count(c.size)} bytes`],
                ['Created', <DateTime key="d" at={c.created_at} />],
                ['Started', <Time key="s" at={c.started_at} />],
                c.finished_at !== null && ['Finished', <DateTime key="f" at={c.finished_at} />],
              ]}
            />
          </Card>
          <Card title="Targets and rules">
            <Facts
              facts={[
                Object.keys(c.targets.labels ?? {}).length > 0 && ['Labels', <Tags key="l" labels={c.targets.labels ?? {}} />],
                (c.targets.site_ids?.length ?? 0) > 0 && ['Sites', <Several key="s" items={c.targets.site_ids ?? []} show={(s) => <SiteLink id={s} />} />],
                (c.targets.device_ids?.length ?? 0) > 0 && ['Devices', <Several key="d" items={c.targets.device_ids ?? []} show={(d) => <code>{d}</code>} />],
                ['A stage is good', `when ${percent(c.success_threshold)} of its devices succeed`],
                ['Too many fail', `when more than ${percent(c.failure_threshold)} fail, of at least ${plural(c.min_devices, 'finished device')}; then it ${c.auto_abort ? 'aborts' : 'pauses'}`],
                ['A good stage', c.auto_promote ? `is promoted by itself${c.soak_seconds ? ` after ${duration(c.soak_seconds)}` : ''}` : 'waits for a person'],
                ['A device may take', c.device_timeout_seconds ? duration(c.device_timeout_seconds) : 'for ever'],
              ]}
            />
          </Card>
        </div>
        {c.status !== 'draft' && <CampaignDevices campaign={c} />}
      </div>
    </Page>
  );
}

function advice(c: Campaign): string {
  if (c.counts.failed === 0) return 'Resume or abort it.';
  return `Look at the failed devices below. Then ask them again, ${isLast(c) ? 'or abort the campaign.' : 'promote the campaign all the same, or abort it.'}`;
}

function rolloutText({ rollout: r, paused_reason }: Campaign): string {
  if (r.phase === 'selecting') return 'The devices are being selected.';
  const what = r.phase === 'retrying' ? 'Failed devices are being asked again' : 'Devices are being asked';
  return paused_reason ? `${count(r.done)} of ${plural(r.total, 'device')} were asked before it was paused.` : `${what}: ${count(r.done)} of ${count(r.total)}.`;
}

const mostNamed = 20;

function Several({ items, show }: { items: readonly string[]; show: (item: string) => ReactNode }) {
  return (
    <span className="tags">
      {items.slice(0, mostNamed).map((item) => (
        <span key={item}>{show(item)}</span>
      ))}
      {items.length > mostNamed && <span className="muted">and {count(items.length - mostNamed)} more</span>}
    </span>
  );
}

export function stagesOf(c: Campaign): Stage[] {
  return c.stages.map((share, i) => {
    const current = c.status === 'running' && i === c.current_stage;
    const passed = c.status === 'completed' || i < c.current_stage;
    const devices = upTo(c.stages, i, c.counts.total) - upTo(c.stages, i - 1, c.counts.total);
    return {
      title: `Stage ${i + 1}: ${share} %`,
      current,
      ...(passed
        ? { state: 'passed', tone: 'ok' as const }
        : current
          ? c.paused_reason
            ? { state: 'paused', tone: 'warn' as const }
            : { state: 'running', tone: 'info' as const }
          : c.status === 'aborted'
            ? i === c.current_stage
              ? { state: 'aborted', tone: 'bad' as const }
              : { state: 'not reached', tone: 'idle' as const }
            : { state: 'to come', tone: 'idle' as const }),
      detail: c.status === 'draft' ? `up to ${share} % of the devices` : plural(devices, 'device'),
    };
  });
}

function Counts({ campaign: c }: { campaign: Campaign }) {
  return (
    <Card title={plural(c.counts.total, 'device')}>
      <div className="stack-tight">
        <Bar total={c.counts.total} parts={outcomeParts(c)} />
        <div className="row">
          {outcomes
            .filter((o) => c.counts[o] > 0)
            .map((o) => (
              <span key={o} className="row">
                <Outcome outcome={o} /> {count(c.counts[o])}
              </span>
            ))}
        </div>
      </div>
    </Card>
  );
}

/** After the last stage nothing is left to promote: the campaign completes by itself. */
const isLast = (c: Campaign) => c.current_stage === c.stages.length - 1;

function Decisions({ campaign: c }: { campaign: Campaign }) {
  const confirm = useConfirm();
  const queries = useQueryClient();
  const path = { params: { path: { id: c.id } } };
  const refresh = () => queries.invalidateQueries({ queryKey: ['campaigns'] });
  const asked = upTo(c.stages, c.current_stage, c.counts.total);
  const next = upTo(c.stages, c.current_stage + 1, c.counts.total) - asked;

  const start = () =>
    confirm({
      title: `Start ${c.name}?`,
      body: <StartQuestion campaign={c} />,
      action: 'Start the campaign',
      run: async () => {
        await api.POST('/ota/campaigns/{id}/start', path);
        await refresh();
      },
      done: `${c.name} is running.`,
    });
  const promote = () =>
    confirm({
      title: `Promote ${c.name} to stage ${c.current_stage + 2}?`,
      body: (
        <>
          <p>
            {plural(next, 'more device')} will be asked to update to {c.version}.
          </p>
          <p className="muted">
            Of the {plural(asked, 'device')} asked so far, {count(c.counts.succeeded)} succeeded and {count(c.counts.failed)} failed.
          </p>
        </>
      ),
      action: `Ask ${plural(next, 'device')}`,
      run: async () => {
        await api.POST('/ota/campaigns/{id}/promote', path);
        await refresh();
      },
      done: `${c.name} is promoted.`,
    });
  const retry = () =>
    confirm({
      title: `Ask ${plural(c.counts.failed, 'failed device')} of ${c.name} again?`,
      body: (
        <p>
          They are asked once more to update to <b>{c.version}</b>, and count as they then turn out. {c.paused_reason ? 'The campaign continues.' : c.status === 'completed' ? 'The campaign runs until they have finished.' : ''}
        </p>
      ),
      action: `Ask ${plural(c.counts.failed, 'device')} again`,
      run: async () => {
        await api.POST('/ota/campaigns/{id}/retry', path);
        await refresh();
      },
      done: `The failed devices of ${c.name} are asked again.`,
    });
  const step = async (call: Promise<unknown>, done: string) => {
    try {
      await call;
      toast(done);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await refresh();
  };
  const pause = () => step(api.POST('/ota/campaigns/{id}/pause', path), `${c.name} is paused.`);
  const resume = () => step(api.POST('/ota/campaigns/{id}/resume', path), `${c.name} continues.`);
  const abort = () =>
    confirm({
      title: `Abort ${c.name}?`,
      body: (
        <p>
          The {plural(c.counts.waiting, 'device')} of later stages will not be asked. The {plural(c.counts.pending + c.counts.in_progress, 'device')} that {c.counts.pending + c.counts.in_progress === 1 ? 'was' : 'were'} asked
          and {c.counts.pending + c.counts.in_progress === 1 ? 'has' : 'have'} not finished may still update: what has begun is not cancelled. An aborted campaign cannot be started again.
        </p>
      ),
      action: 'Abort the campaign',
      danger: true,
      run: async () => {
        await api.POST('/ota/campaigns/{id}/abort', path);
        await refresh();
      },
      done: `${c.name} is aborted.`,
    });
  return (
    <>
      {(c.status === 'running' || c.status === 'completed') && c.counts.failed > 0 && c.rollout.phase === 'idle' && (
        <Allowed operation="RetryCampaign">
          <button type="button" className="btn" onClick={retry}>
            Retry failed
          </button>
        </Allowed>
      )}
      {c.status === 'running' && (
        <>
          {c.paused_reason ? (
            <Allowed operation="ResumeCampaign">
              <button type="button" className="btn" onClick={() => void resume()}>
                Resume
              </button>
            </Allowed>
          ) : (
            <Allowed operation="PauseCampaign">
              <button type="button" className="btn" onClick={() => void pause()}>
                Pause
              </button>
            </Allowed>
          )}
          <Allowed operation="AbortCampaign">
            <button type="button" className="btn" onClick={abort}>
              Abort
            </button>
          </Allowed>
          {!isLast(c) && c.rollout.phase === 'idle' && (
            <Allowed operation="PromoteCampaign">
              <button type="button" className="btn btn-primary" onClick={promote}>
                Promote
              </button>
            </Allowed>
          )}
        </>
      )}
      {c.status === 'draft' && (
        <>
          <Allowed operation="AbortCampaign">
            <button type="button" className="btn" onClick={abort}>
              Abort
            </button>
          </Allowed>
          <Allowed operation="StartCampaign">
            <button type="button" className="btn btn-primary" onClick={start}>
              Start
            </button>
          </Allowed>
        </>
      )}
    </>
  );
}

function StartQuestion({ campaign: c }: { campaign: Campaign }) {
  const targets = useQuery({ queryKey: ['campaigns', 'targets', c.id], queryFn: ({ signal }) => countTargets(c.targets, signal), staleTime: 0 });
  const devices = targets.data;
  return (
    <>
      {targets.error ? (
        <Failure error={targets.error} />
      ) : devices !== undefined ? (
        devices === 0 ? (
          <Notice tone="warn">No device matches the targets now.</Notice>
        ) : (
          <p>
            <b>{plural(devices, 'device')}</b> {devices === 1 ? 'matches' : 'match'} now. {plural(upTo(c.stages, 0, devices), 'device')} in the first stage ({c.stages[0]} %) will be asked at once to update to <b>{c.version}</b>.
          </p>
        )
      ) : (
        <p className="muted">Counting the devices…</p>
      )}
      <p className="muted">The targets are frozen at the start: devices that are registered later are not part of it.</p>
    </>
  );
}

const columns: Column<CampaignDevice>[] = [
  { id: 'device', header: 'Device', cell: (d) => d.device_id, sort: (d) => d.device_id },
  { id: 'site', header: 'Site', cell: (d) => <SiteLink id={d.site_id} />, text: (d) => d.site_id },
  { id: 'stage', header: 'Stage', cell: (d) => (d.stage < 0 ? <span className="muted">later</span> : d.stage + 1), sort: (d) => d.stage, end: true },
  { id: 'outcome', header: 'Outcome', cell: (d) => <Outcome outcome={d.outcome} />, sort: (d) => d.outcome, text: (d) => words(d.outcome) },
  { id: 'message', header: 'Message', cell: (d) => d.message, text: (d) => d.message },
];

function CampaignDevices({ campaign }: { campaign: Campaign }) {
  const { id } = campaign;
  const may = useMay();
  const queries = useQueryClient();
  const [outcome, setOutcome] = useParam<'' | CampaignDevice['outcome']>('outcome', '');
  const pages = usePages(
    ['campaigns', 'devices', id, outcome],
    (cursor, signal) => page(api.GET('/ota/campaigns/{id}/devices', { params: { path: { id }, query: { cursor, ...(outcome && { outcome }) } }, signal })),
    { refreshSeconds: 5 },
  );
  return (
    <Card title="Devices" flush>
      <Table
        label="Devices of the campaign"
        at="devices."
        noun="device"
        columns={columns}
        pages={pages}
        rowKey={(d) => d.device_id}
        href={(d) => `${devicePath(d.device_id)}#ota`}
        bulk={
          may('RetryCampaign') && campaign.status !== 'aborted'
            ? [
                {
                  label: 'Retry',
                  applies: (d: CampaignDevice) => d.outcome === 'failed',
                  body: `They are asked once more to update to ${campaign.version}, and count as they then turn out. A campaign that is paused continues.`,
                  together: (devices: readonly CampaignDevice[]) => api.POST('/ota/campaigns/{id}/retry', { params: { path: { id } }, body: { device_ids: devices.map((d) => d.device_id) } }),
                  after: () => queries.invalidateQueries({ queryKey: ['campaigns'] }),
                },
              ]
            : []
        }
        tools={<Choice label="Outcome" value={outcome} options={[{ value: '', label: 'Any outcome' }, ...outcomes.map((o) => ({ value: o, label: words(o) }))]} onChange={setOutcome} />}
        empty={{ icon: 'device', title: outcome ? `No device is ${words(outcome)}` : 'No devices', text: outcome ? undefined : 'No device matched the targets when the campaign was started.' }}
      />
    </Card>
  );
}
