/** The states of VIPs, backends and sessions, each with its text and colour. */
import { Status, type Tone } from '../ui/status';
import type { Backend, BGPSession, Node, VIP } from './api';

const backendTones: Record<Backend['state'], Tone> = { healthy: 'ok', draining: 'warn', down: 'bad' };

/** Includes who drains: an operator, whose drain ends with the daemon, or an orchestrator. */
export function backendState(b: Pick<Backend, 'state' | 'adminDraining'>): string {
  return b.state === 'draining' ? `draining (${b.adminDraining ? 'operator' : 'orchestrator'})` : b.state;
}

export const BackendState = ({ backend }: { backend: Backend }) => (
  <Status tone={backendTones[backend.state]} icon={backend.state === 'draining' ? 'pause' : undefined}>
    {backendState(backend)}
  </Status>
);

export interface Tally {
  total: number;
  healthy: number;
  draining: number;
  down: number;
}

export function tally(backends: readonly Pick<Backend, 'state'>[]): Tally {
  const of = (state: Backend['state']) => backends.filter((b) => b.state === state).length;
  return { total: backends.length, healthy: of('healthy'), draining: of('draining'), down: of('down') };
}

/** A VIP without a healthy backend takes no new connections. */
export function vipTone(t: Tally): Tone {
  return t.healthy === 0 ? 'bad' : t.healthy < t.total ? 'warn' : 'ok';
}

export function tallyText(t: Tally): string {
  if (t.total === 0) return 'no backends';
  const rest = [t.draining && `${t.draining} draining`, t.down && `${t.down} down`].filter(Boolean).join(', ');
  return `${t.healthy} of ${t.total} healthy${rest ? ` (${rest})` : ''}`;
}

export function VIPState({ vip }: { vip: Pick<VIP, 'backends'> }) {
  const t = tally(vip.backends);
  return <Status tone={vipTone(t)}>{tallyText(t)}</Status>;
}

const badness: Record<Tone, number> = { bad: 0, warn: 1, ok: 2, info: 3, idle: 4 };

/** VIPs with problems first, otherwise in the configured order. */
export function worstFirst(vips: readonly VIP[]): VIP[] {
  return [...vips].sort((a, b) => badness[vipTone(tally(a.backends))] - badness[vipTone(tally(b.backends))]);
}

/** Whether the node is balancing. The banner says what is missing. */
export function nodeState(node: Pick<Node, 'attached' | 'notReady'>, vips: readonly { backends: readonly Pick<Backend, 'state'>[] }[]): { tone: Tone; text: string } {
  if (node.notReady) return { tone: 'bad', text: node.attached ? 'not ready' : 'not balancing' };
  if (vips.length === 0) return { tone: 'idle', text: 'no VIPs' };
  return vips.some((v) => tally(v.backends).healthy > 0) ? { tone: 'ok', text: 'balancing' } : { tone: 'bad', text: 'no healthy backends' };
}

export function SessionState({ session }: { session: BGPSession }) {
  return <Status tone={session.state === 'established' ? 'ok' : session.state === 'idle' || session.state === 'active' ? 'bad' : 'info'}>{session.state}</Status>;
}

export function Announced({ vip }: { vip: Pick<VIP, 'announced' | 'bgpPeers'> }) {
  if (vip.bgpPeers.length === 0) return <span className="muted">no BGP</span>;
  return vip.announced ? (
    <Status tone="ok">announced</Status>
  ) : (
    <Status tone="idle" icon="ban">
      withdrawn
    </Status>
  );
}
