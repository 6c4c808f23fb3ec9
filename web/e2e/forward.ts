import { connect, createServer, type Socket } from 'node:net';
import { freePort } from './server';

/** Makes an address elsewhere one of this machine, which browsers trust without TLS. */
export async function forward(host: string, port: number, local?: number): Promise<{ url: string; stop: () => void }> {
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(port, host);
    for (const [from, to] of [[near, far], [far, near]] as const) {
      open.add(from);
      from.once('close', () => open.delete(from) && to.destroy());
      from.on('error', () => to.destroy());
      from.pipe(to);
    }
  });
  const at = local ?? (await freePort());
  await new Promise<void>((done) => server.listen(at, '127.0.0.1', done));
  const stop = () => {
    server.close();
    for (const socket of open) socket.destroy();
  };
  return { url: `http://127.0.0.1:${at}`, stop };
}
