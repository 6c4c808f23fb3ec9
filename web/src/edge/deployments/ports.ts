/** Ports in text form: `8080:80/tcp` maps port 8080 of the host to port 80 of the container. */
import { DraftError } from '../../ui/draft';
import type { Deployment } from '../api';

type Port = Deployment['ports'][number];

export function portText(port: Port): string {
  return `${port.host_port ? `${port.host_port}:` : ''}${port.container_port}/${port.protocol}`;
}

/** Parses one port per line. The contract's schema checks the range of the numbers. */
export function parsePorts(lines: readonly string[]): Port[] {
  return lines.map((line) => {
    const match = /^(?:(\d+):)?(\d+)(?:\/(tcp|udp))?$/.exec(line.trim());
    if (!match) throw new DraftError(`“${line}” is not a port. Write HOST:CONTAINER/tcp, as in 8080:80/tcp, one a line.`);
    const [, host, container, protocol] = match;
    return { container_port: Number(container), ...(host && { host_port: Number(host) }), protocol: protocol === 'udp' ? 'udp' : 'tcp' };
  });
}
