/** The states of the edge control plane's objects, each with its colour. */
import { Status, words, type Tone } from '../ui/status';
import { Time } from '../ui/time';
import type { ActivityEntry, Alert, AuditEntry, Campaign, CampaignDevice, DeadLetter, Route, Site } from './api';
import { known, type Known } from './deployments/known';
import { failedEnds } from './notes';

const site: Record<Site['status'], Tone> = { online: 'ok', offline: 'warn', revoked: 'idle' };
export const SiteState = ({ status }: { status: Site['status'] }) => <Status tone={site[status]}>{status}</Status>;

const deployment: Record<Known['status'], Tone> = { pending: 'info', pulling: 'info', running: 'ok', stopped: 'idle', failed: 'bad', denied: 'bad', rolled_back: 'warn', unknown: 'warn' };

/** The known status of a deployment. If it is unknown, also since when. */
export function DeploymentState({ deployment: d }: { deployment: Parameters<typeof known>[0] }) {
  const { status, last } = known(d);
  return (
    <>
      <Status tone={deployment[status]}>{words(status)}</Status>
      {last && (
        <>
          {' '}
          <span className="muted small">
            was {words(last.status)}, site last seen <Time at={last.at} />
          </span>
        </>
      )}
    </>
  );
}

/** A running campaign that waits for a decision is shown as paused. */
export function CampaignState({ campaign }: { campaign: Pick<Campaign, 'status' | 'paused_reason'> }) {
  if (campaign.status === 'running' && campaign.paused_reason) {
    return (
      <Status tone="warn" icon="pause">
        waits for a decision
      </Status>
    );
  }
  const tones: Record<Campaign['status'], Tone> = { draft: 'idle', running: 'info', completed: 'ok', aborted: 'bad' };
  return <Status tone={tones[campaign.status]}>{campaign.status}</Status>;
}

export const outcomeTones: Record<CampaignDevice['outcome'], Tone> = { waiting: 'idle', pending: 'idle', in_progress: 'info', succeeded: 'ok', failed: 'bad', removed: 'idle' };
export const Outcome = ({ outcome }: { outcome: CampaignDevice['outcome'] }) => <Status tone={outcomeTones[outcome]}>{words(outcome)}</Status>;

export function OTAState({ state }: { state: string }) {
  const tone: Tone = ['succeeded', 'already_installed'].includes(state) ? 'ok' : failedEnds.includes(state) ? 'bad' : state === 'pending' ? 'idle' : 'info';
  return <Status tone={tone}>{words(state)}</Status>;
}

export function Enabled({ enabled }: { enabled: boolean }) {
  return enabled ? (
    <Status tone="ok">enabled</Status>
  ) : (
    <Status tone="idle" icon="ban">
      disabled
    </Status>
  );
}

const routeStates: Record<Route['delivery']['state'], { tone: Tone; text: string }> = {
  idle: { tone: 'idle', text: 'nothing sent yet' },
  ok: { tone: 'ok', text: 'delivers' },
  failing: { tone: 'bad', text: 'failing' },
  circuit_open: { tone: 'bad', text: 'circuit open' },
  blocked: { tone: 'bad', text: 'blocked' },
  disabled: { tone: 'idle', text: 'disabled' },
};
export const routeState = (route: Pick<Route, 'delivery'>) => routeStates[route.delivery.state].text;

/** The state of deliveries over a route, not only whether it is enabled. */
export function RouteState({ route }: { route: Pick<Route, 'delivery'> }) {
  const { tone, text } = routeStates[route.delivery.state];
  return (
    <Status tone={tone} icon={route.delivery.state === 'disabled' ? 'ban' : undefined}>
      {text}
    </Status>
  );
}

/** Whether the last error is a current problem. */
export const routeFails = (route: Pick<Route, 'delivery'>) => ['failing', 'circuit_open', 'blocked'].includes(route.delivery.state);

export function Breaker({ state }: { state: string }) {
  if (state === 'closed') return <Status tone="ok">circuit closed</Status>;
  return <Status tone={state === 'open' ? 'bad' : 'warn'}>{`circuit ${words(state)}`}</Status>;
}

export const Severity = ({ severity }: { severity: Alert['severity'] }) => <Status tone={severity === 'critical' ? 'bad' : 'warn'} icon="alert">{severity}</Status>;

const levels: Record<ActivityEntry['level'], Tone> = { info: 'info', warn: 'warn', error: 'bad', chapter: 'idle', ok: 'ok' };
export const Level = ({ level }: { level: ActivityEntry['level'] }) => <Status tone={levels[level]} icon={level === 'info' ? 'info' : undefined}>{level}</Status>;

const results: Record<AuditEntry['result'], Tone> = { ok: 'ok', error: 'bad', denied: 'warn' };
export const Result = ({ result }: { result: AuditEntry['result'] }) => <Status tone={results[result]}>{result}</Status>;

const reasons: Record<DeadLetter['reason'], string> = { exhausted: 'retries used up', permanent: 'refused by the target', route_disabled: 'route disabled', route_deleted: 'route deleted' };
export const deadLetterReason = (reason: DeadLetter['reason']) => reasons[reason];
