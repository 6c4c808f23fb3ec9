/** Ports of the host that lead into a guest, as people write them. */
import { DraftError } from '../../ui/draft';
import type { Forward } from '../api';

const most = 65_535;

/** The address of the host where only the host itself reaches a port. */
const usual = '127.0.0.1';

/** “30080:80, 0.0.0.0:30053:53/udp” as forwards. Throws a DraftError that names the part that is not one. */
export function forwardsOf(text: string): Forward[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((part) => {
      const match = /^(?:(\d{1,3}(?:\.\d{1,3}){3}):)?(\d{1,5}):(\d{1,5})(?:\/(tcp|udp))?$/.exec(part);
      const [host, guest] = [Number(match?.[2]), Number(match?.[3])];
      if (!match || [host, guest].some((port) => port < 1 || port > most)) {
        throw new DraftError(`“${part}” is not a port of the host and one of the guest. Write them as in 30080:80, 30053:53/udp.`);
      }
      return { protocol: match[4] === 'udp' ? 'udp' : 'tcp', host_address: match[1] ?? usual, host_port: host, guest_port: guest };
    });
}

/** A forward as it is written. */
export const forwardText = (f: Forward) => `${f.host_address === usual ? '' : `${f.host_address}:`}${f.host_port}:${f.guest_port}${f.protocol === 'udp' ? '/udp' : ''}`;

/** Forwards as they are written. */
export const forwardsText = (all: readonly Forward[] | undefined) => (all ?? []).map(forwardText).join(', ');
