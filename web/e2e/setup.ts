/**
 * Before all tests: one server with something of everything, whose sites are kept
 * alive, and one that is empty. Tests learn of them by the environment.
 */
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { caller, fill } from './fixtures';
import { binary, end, startServer } from './server';

const beatMs = 800;

export default async function setup(): Promise<() => Promise<void>> {
  // What routes deliver to: it takes what comes to /ok and refuses the rest for good.
  const sink = createServer((request, response) => {
    request.resume();
    request.on('end', () => response.writeHead(request.url?.startsWith('/ok') ? 200 : 422).end('so says the sink'));
  });
  await new Promise<void>((done) => sink.listen(0, '127.0.0.1', done));
  const sinkUrl = `http://127.0.0.1:${(sink.address() as AddressInfo).port}`;

  const [full, empty] = await Promise.all([startServer(), startServer()]);
  const alive = new Set<string>();
  const beat = setInterval(() => {
    for (const token of alive) void caller(full, token)('POST', '/heartbeat', {}).catch(() => alive.delete(token));
  }, beatMs);
  const stop = async () => {
    clearInterval(beat);
    await Promise.all([full.stop(), empty.stop()]);
    sink.close();
  };
  try {
    const fixtures = await fill(full, sinkUrl);
    for (const [name, site] of Object.entries(fixtures.sites)) if (!['quiet-1', 'retired-1'].includes(name)) alive.add(site.agent);

    // Sites with certificates and events that come by themselves.
    const simulator = spawn(binary, ['edge', 'simulate', '--server', full.url, '--enrollment-token', full.credentials.enrollment_token, '--sites', '3', '--devices', '9', '--event-interval', '1s', '--prefix', 'sim'], {
      stdio: 'ignore',
    });
    process.env['E2E'] = JSON.stringify({ full: { url: full.url, credentials: full.credentials }, empty: { url: empty.url, credentials: empty.credentials }, fixtures, sink: sinkUrl });
    return async () => {
      await end(simulator);
      await stop();
    };
  } catch (e) {
    await stop();
    throw e;
  }
}
