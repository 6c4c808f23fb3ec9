/** Ports as people write them. */
import { DraftError } from '../../ui/draft';

export interface PortRange {
  port: number;
  end_port?: number;
}

const most = 65_535;

/** “22, 8000-8100” as ranges. Throws a DraftError that names the part that is not a port. */
export function portsOf(text: string): PortRange[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((part) => {
      const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
      const [first, last] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
      if (!match || first < 1 || last > most || last < first) throw new DraftError(`“${part}” is not a port. Write ports from 1 to ${most}, as in 22, 8000-8100.`);
      return { port: first, ...(last > first && { end_port: last }) };
    });
}

/** Ranges as they are written. */
export const portsText = (ports: readonly PortRange[] | undefined) => (ports ?? []).map((p) => (p.end_port && p.end_port !== p.port ? `${p.port}-${p.end_port}` : `${p.port}`)).join(', ');
