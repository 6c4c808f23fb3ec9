/**
 * VM management for the tests, as a newcomer has it: `mainstay dev` with a real hypervisor daemon, in a
 * network namespace of its own, so that VMs have a bridge with network policies.
 */
import { expect, type Page } from '@playwright/test';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { whyNot as whyNoVMs } from './hypervisor';
import { forward } from './forward';
import { binary, end, freePort } from './server';

const run = (...command: string[]) => execFileSync(command[0] ?? '', command.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] });
const attempt = (...command: string[]) => {
  try {
    execFileSync(command[0] ?? '', command.slice(1), { stdio: 'ignore' });
  } catch {
    // It is gone already.
  }
};

/** The package with the kernel of the demo guest, which the daemon cannot fetch: its namespace leads nowhere. */
function kernelPackage(): string {
  const cache = join(tmpdir(), `mainstay-demo-guest-${process.getuid?.() ?? 0}`);
  mkdirSync(cache, { recursive: true, mode: 0o700 });
  const found = () => readdirSync(cache).find((f) => /^linux-image-.*-cloud-amd64_.*\.deb$/.test(f));
  if (!found()) run('sh', '-c', `cd '${cache}' && apt-get -q download "$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -1)"`);
  return join(cache, found() ?? 'no package of a kernel was found');
}

/** Why it cannot run here. */
export function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root, for a network namespace';
  try {
    execFileSync('sh', ['-c', 'command -v ip && command -v nft'], { stdio: 'ignore' });
  } catch {
    return 'needs the programs ip and nft';
  }
  return whyNoVMs();
}

export interface Management {
  url: string;
  /** Files of it may be imported as images. */
  folder: string;
  hypervisor: { url: string; token: string };
  username: string;
  password: string;
  /** Calls the API as the admin. */
  call: <T = unknown>(method: string, path: string, body?: unknown) => Promise<T>;
  /** Calls the API as somebody else. */
  login: (username: string, password: string) => Promise<string>;
  /** Makes a VM of the demo guest, and waits until it is stopped or runs. */
  made: (name: string, more?: object, start?: boolean) => Promise<void>;
  /** Makes an image, and waits until it is there or has failed. */
  image: (how: 'build' | 'import', spec: object) => Promise<{ id: string; state: string }>;
  stop: () => Promise<void>;
}

interface Credentials {
  hypervisor: { token: string };
  vm: { username: string; password: string };
}

export async function startManagement(): Promise<Management> {
  // The process's number keeps runs apart that are under way at once.
  const n = 1 + (process.pid % 250);
  const [namespace, link] = [`vm-e2e-${process.pid}`, `vme2e${n}`];
  const [host, node] = [`10.97.${n}.1`, `10.97.${n}.2`];
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-vm-e2e-'));
  let child: ChildProcess | undefined;
  let output = '';
  let token = '';
  const [port, below] = [await freePort(), await freePort()];
  const [url, daemon] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${below}`];
  const forwarded: { stop: () => void }[] = [];
  const send = async <T>(method: string, at: string, body: unknown, bearer: string): Promise<T> => {
    const response = await fetch(at, { method, headers: { Authorization: `Bearer ${bearer}`, 'Content-Type': 'application/json' }, body: body === undefined ? null : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as T;
  };
  const call: Management['call'] = (method, path, body) => send(method, url + path, body, token);
  const until = async (what: string, done: () => Promise<boolean>) => {
    for (let i = 0; i < 900; i++) {
      if (await done().catch(() => false)) return;
      await new Promise((next) => setTimeout(next, 100));
    }
    throw new Error(`not after 90 s: ${what}:\n${output}`);
  };
  const stop = async () => {
    // VMs outlive the daemon, unless they are deleted.
    const credentials = read(folder);
    if (credentials) {
      const vms = await send<{ id: string }[]>('GET', `${daemon}/v1/vms`, undefined, credentials.hypervisor.token).catch(() => []);
      await Promise.all(vms.map((v) => send('DELETE', `${daemon}/v1/vms/${v.id}`, undefined, credentials.hypervisor.token).catch(() => undefined)));
    }
    if (child) await end(child);
    for (const f of forwarded) f.stop();
    attempt('ip', 'link', 'del', link);
    attempt('ip', 'netns', 'del', namespace);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    attempt('ip', 'link', 'del', link);
    run('ip', 'netns', 'add', namespace);
    run('ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', 'up0', 'netns', namespace);
    run('ip', 'addr', 'add', `${host}/24`, 'dev', link);
    run('ip', 'link', 'set', link, 'up');
    run('ip', '-n', namespace, 'addr', 'add', `${node}/24`, 'dev', 'up0');
    run('ip', '-n', namespace, 'link', 'set', 'up0', 'up');
    run('ip', '-n', namespace, 'link', 'set', 'lo', 'up');
    const kernels = join(folder, 'data/hypervisor/demo');
    mkdirSync(kernels, { recursive: true, mode: 0o700 });
    const kernel = kernelPackage();
    copyFileSync(kernel, join(kernels, basename(kernel)));
    child = spawn('ip', ['netns', 'exec', namespace, binary, 'dev', '--data', join(folder, 'data'), '--only', 'hypervisor,vm', '--host', node], {
      cwd: folder,
      env: { ...process.env, HYPERVISOR_ACCEL: 'tcg', VM_COMPARE_INTERVAL: '1s', VM_IMAGE_IMPORT_FOLDERS: folder, VM_LISTEN: `${node}:${port}`, HYPERVISOR_LISTEN: `${node}:${below}` },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (output += chunk.toString()));
    // Browsers trust addresses of this machine without TLS.
    forwarded.push(await forward(node, port, port), await forward(node, below, below));
    await until('VM management is ready', async () => (await fetch(`${url}/readyz`)).ok);
    const credentials = read(folder);
    if (!credentials) throw new Error(`there are no credentials:\n${output}`);
    const { hypervisor: hypervisorAdmin, vm: admin } = credentials;
    const login: Management['login'] = async (username, password) => (await send<{ token: string }>('POST', `${url}/api/auth/login`, { username, password }, '')).token;
    token = await login(admin.username, admin.password);
    const hypervisor = { url: daemon, token: hypervisorAdmin.token };
    const operation = await send<{ id: string }>('POST', `${hypervisor.url}/v1/images/demo`, undefined, hypervisorAdmin.token);
    const built = await send<{ state: string; error: string }>('GET', `${hypervisor.url}/v1/operations/${operation.id}?wait=120`, undefined, hypervisorAdmin.token);
    if (built.state !== 'succeeded') throw new Error(`the demo image: ${built.error}`);
    const made: Management['made'] = async (name, more = {}, started = false) => {
      const vm = await call<{ id: string }>('POST', '/api/vms', { name, image: 'demo', memory: 192, disk: 1, ...more });
      await until(`${name} is made`, async () => (await call<{ job: object | null }>('GET', `/api/vms/${name}`)).job === null);
      if (!started) return;
      await call('POST', `/api/vms/${name}/start`, {});
      await until(`${name} runs`, async () => {
        const now = await call<{ state: string; job: object | null }>('GET', `/api/vms/${name}`);
        return now.state === 'running' && now.job === null && vm.id !== '';
      });
    };
    const image: Management['image'] = async (how, spec) => {
      let now = await call<{ id: string; state: string }>('POST', `/api/images/${how}`, spec);
      await until('the image is there or has failed', async () => {
        now = await call('GET', `/api/images/${now.id}`);
        return ['completed', 'failed'].includes(now.state);
      });
      return now;
    };
    return { url, folder, hypervisor, ...admin, call, login, made, image, stop };
  } catch (e) {
    await stop();
    throw e;
  }
}

function read(folder: string): Credentials | undefined {
  try {
    return JSON.parse(readFileSync(join(folder, 'data/credentials.json'), 'utf8')) as Credentials;
  } catch {
    return undefined; // it was not started
  }
}

/** Gives the browser a session, and opens a page. */
export async function open(page: Page, m: Management, path: string, as: { username: string; password: string } = m): Promise<void> {
  const { username, password } = as;
  const answer = await page.context().request.post(`${m.url}/console/session`, { headers: { 'X-Mainstay-Console': 'e2e' }, data: { username, password } });
  expect(answer.status(), await answer.text()).toBe(204);
  await page.goto(m.url + path);
  await expect(page.getByRole('button', { name: 'Keyboard shortcuts' })).toBeVisible();
}
