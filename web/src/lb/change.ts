/**
 * What an operator would change about a backend: the commands for it, and what would remain. The
 * console itself changes nothing.
 */
import { shellWord } from '../ui/shell-word';
import type { Backend, Node, VIP } from './api';
import { bracketed } from './links';

type Target = Pick<Backend, 'address' | 'port'>;

/** A backend as the commands name it. */
export const backendArgument = (b: Target) => `${bracketed(b.address)}:${b.port}`;

export interface Commands {
  drain: string;
  undrain: string;
  weight: string;
}

/** The commands of `mainstay lb`. The weight changes at one VIP, or at all that the backend serves. */
export function commands(b: Target, weight: string, server: string, vip?: string): Commands {
  const at = shellWord(backendArgument(b));
  const to = `--server ${shellWord(server)}`;
  return {
    drain: `mainstay lb drain ${at} ${to}`,
    undrain: `mainstay lb undrain ${at} ${to}`,
    weight: `mainstay lb weight ${at} ${shellWord(weight)}${vip === undefined ? '' : ` --vip ${shellWord(vip)}`} ${to}`,
  };
}

/** Whether an orchestrator drains a backend, at its port or at all of them. */
export const isOrchestratorDrained = (b: Target, node: Pick<Node, 'orchestratorDrains'>) => {
  const names = [backendArgument(b), backendArgument({ ...b, port: 0 })];
  return node.orchestratorDrains.some((d) => d.backends.some((name) => names.includes(name)));
};

/** What a VIP has left for new connections. */
export interface Remaining {
  vip: string;
  /** Backends that would take new connections, and all. */
  takers: number;
  total: number;
  /** Their share of the weight of all (0 to 1). */
  share: number;
}

interface Row {
  takes: boolean;
  weight: number;
}

function remaining(vip: string, rows: readonly Row[]): Remaining {
  const weight = (of: readonly Row[]) => of.reduce((sum, r) => sum + r.weight, 0);
  const takers = rows.filter((r) => r.takes);
  return { vip, takers: takers.length, total: rows.length, share: rows.length > 0 ? weight(takers) / weight(rows) : 0 };
}

/** What each VIP that the backend serves would have left if it took new connections, or no more. */
export function remainingIf(vips: readonly Pick<VIP, 'name' | 'backends'>[], id: number, takes: boolean): Remaining[] {
  return vips
    .filter((v) => v.backends.some((b) => b.id === id))
    .map((v) => remaining(v.name, v.backends.map((b) => ({ takes: b.id === id ? takes : b.state === 'healthy', weight: b.weight }))));
}

/** The share of a VIP's new connections that a weight gives a backend; nothing while it takes none. */
export function shareWith(vip: Pick<VIP, 'backends'>, id: number, weight: number): number | undefined {
  const takers = vip.backends.filter((b) => b.state === 'healthy');
  if (!takers.some((b) => b.id === id)) return undefined;
  const total = takers.reduce((sum, b) => sum + (b.id === id ? weight : b.weight), 0);
  return total > 0 ? weight / total : undefined;
}
