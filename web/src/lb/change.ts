/**
 * The commands to change a backend, and their effect on the VIPs. The console itself changes
 * nothing.
 */
import { shellWord } from '../ui/shell-word';
import type { Backend, Node, VIP } from './api';
import { bracketed } from './links';

type Target = Pick<Backend, 'address' | 'port'>;

/** A backend in the form that the commands accept. */
export const backendArgument = (b: Target) => `${bracketed(b.address)}:${b.port}`;

export interface Commands {
  drain: string;
  undrain: string;
  weight: string;
}

/**
 * The commands of `mainstay lb`. The weight changes at one VIP, or at all that the backend serves.
 */
export function commands(b: Target, weight: string, server: string, vip?: string): Commands {
  const at = shellWord(backendArgument(b));
  const to = `--server ${shellWord(server)}`;
  return {
    drain: `mainstay lb backend drain ${at} ${to}`,
    undrain: `mainstay lb backend undrain ${at} ${to}`,
    weight: `mainstay lb backend weight ${at} ${shellWord(weight)}${vip === undefined ? '' : ` --vip ${shellWord(vip)}`} ${to}`,
  };
}

/** Whether an orchestrator drains a backend, on its port or on all ports. */
export const isOrchestratorDrained = (b: Target, node: Pick<Node, 'orchestratorDrains'>) => {
  const names = [backendArgument(b), backendArgument({ ...b, port: 0 })];
  return node.orchestratorDrains.some((d) => d.backends.some((name) => names.includes(name)));
};

/** The capacity that remains for new connections to a VIP. */
export interface Remaining {
  vip: string;
  /** The number of backends that would take new connections, and of all backends. */
  takers: number;
  total: number;
  /** Their share of the total weight (0 to 1). */
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

/**
 * What remains at each VIP that the backend serves if it takes new connections, or stops doing so.
 */
export function remainingIf(vips: readonly Pick<VIP, 'name' | 'backends'>[], id: number, takes: boolean): Remaining[] {
  return vips
    .filter((v) => v.backends.some((b) => b.id === id))
    .map((v) => remaining(v.name, v.backends.map((b) => ({ takes: b.id === id ? takes : b.state === 'healthy', weight: b.weight }))));
}

/**
 * The share of a VIP's new connections that a backend gets with a weight. Undefined while it takes
 * none.
 */
export function shareWith(vip: Pick<VIP, 'backends'>, id: number, weight: number): number | undefined {
  const takers = vip.backends.filter((b) => b.state === 'healthy');
  if (!takers.some((b) => b.id === id)) return undefined;
  const total = takers.reduce((sum, b) => sum + (b.id === id ? weight : b.weight), 0);
  return total > 0 ? weight / total : undefined;
}
