/** Starts what the tests run against: the real binary, with its own console, on a free port in a folder of its own. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

export const binary = resolve(process.env['MAINSTAY_BIN'] ?? join(import.meta.dirname, '../../bin/mainstay'));

export interface Credentials {
  admin_username: string;
  admin_password: string;
  admin_token: string;
  viewer_token: string;
  enrollment_token: string;
}

export interface Server {
  url: string;
  credentials: Credentials;
  stop: () => Promise<void>;
}

export function freePort(): Promise<number> {
  return new Promise((done, fail) => {
    const probe = createServer();
    probe.once('error', fail);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      const port = typeof address === 'object' && address ? address.port : 0;
      probe.close(() => done(port));
    });
  });
}

/** Ends a process and waits until it is gone. */
export function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((done) => {
    child.once('exit', () => done());
    child.kill('SIGTERM');
  });
}

export async function startServer(): Promise<Server> {
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-e2e-'));
  const data = join(folder, 'data');
  const url = `http://127.0.0.1:${await freePort()}`;
  const child = spawn(binary, ['dev', '--data', data, '--only', 'edge'], {
    cwd: folder,
    env: { ...process.env, EDGE_LISTEN: url.replace('http://', ''), EDGE_HEARTBEAT_INTERVAL: '2s' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const stop = async () => {
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  const failed = new Promise<never>((_, fail) => {
    child.once('error', fail);
    child.once('exit', (code) => fail(new Error(`${binary} dev ended with ${code}:\n${output}`)));
  });
  // A server that is stopped in the end must not fail the run.
  failed.catch(() => undefined);
  await Promise.race([failed, ready(url, () => output)]);
  const credentials = (JSON.parse(readFileSync(join(data, 'credentials.json'), 'utf8')) as { edge: Credentials }).edge;
  return { url, credentials, stop };
}

async function ready(url: string, output: () => string): Promise<void> {
  for (let i = 0; i < 150; i++) {
    const ok = await fetch(`${url}/readyz`).then((r) => r.ok, () => false);
    if (ok) return;
    await new Promise((next) => setTimeout(next, 100));
  }
  throw new Error(`${url} is not ready after 15 s:\n${output()}`);
}
