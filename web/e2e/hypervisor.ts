/** A hypervisor daemon for the tests, with real VMs of the demo guest, tenants, a policy, and a fleet of itself and of a host that is gone. */
import { expect, type Page } from '@playwright/test';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { binary, end, freePort } from './server';
import { signIn } from './session';

export const adminToken = 'hypervisor-admin-token-of-the-e2e-tests';
export const tenantToken = 'hypervisor-tenant-token-of-the-e2e-tests';
const fleetToken = 'hypervisor-fleet-token-of-the-e2e-tests';

/** Why there can be no VMs here. */
export function whyNot(): string | undefined {
  for (const program of ['qemu-system-x86_64', 'qemu-img']) {
    try {
      execFileSync('sh', ['-c', `command -v ${program}`]);
    } catch {
      return `${program} is not installed`;
    }
  }
  return undefined;
}

export interface Hypervisor {
  url: string;
  /** Holds `blank.qcow2`, an empty disk. */
  folder: string;
  call: <T = unknown>(method: string, path: string, body?: unknown, token?: string) => Promise<T>;
  /** Makes a VM of the demo guest, and waits until its agent has answered. */
  demo: (name: string, more?: object) => Promise<{ id: string; name: string }>;
  /** Ends the daemon; its VMs go on. */
  end: () => Promise<void>;
  /** Starts it again, where it was. */
  serve: () => Promise<void>;
  stop: () => Promise<void>;
}

const document = `[policy]
max_vcpus = 4

[auth]
[[auth.tokens]]
name = "shop"
tenant = "shop"
token = "${tenantToken}"
`;

export async function startHypervisor(): Promise<Hypervisor> {
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-hv-e2e-'));
  const url = `http://127.0.0.1:${await freePort()}`;
  writeFileSync(join(folder, 'hypervisor.toml'), document, { mode: 0o600 });
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', join(folder, 'blank.qcow2'), '64M']);
  const env = { ...process.env, HYPERVISOR_LISTEN: url.replace('http://', ''), HYPERVISOR_DATA: join(folder, 'data'), HYPERVISOR_CONFIG: join(folder, 'hypervisor.toml'), HYPERVISOR_TOKEN: adminToken };
  let output = '';
  let child: ChildProcess;
  const serve = async () => {
    const daemon = spawn(binary, ['serve', 'hypervisor'], { env: { ...env, HYPERVISOR_NODE_NAME: 'here', HYPERVISOR_REGISTRY: url, HYPERVISOR_FLEET_TOKEN: fleetToken, HYPERVISOR_HEARTBEAT_INTERVAL: '1s', HYPERVISOR_ACCEL: 'tcg' }, stdio: ['ignore', 'pipe', 'pipe'] });
    child = daemon;
    for (const stream of [daemon.stdout, daemon.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await until('the daemon is ready', async () => (await fetch(`${url}/readyz`)).ok, () => output);
  };

  const call: Hypervisor['call'] = async <T>(method: string, path: string, body?: unknown, token = adminToken): Promise<T> => {
    const response = await fetch(url + path, { method, headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }, body: body === undefined ? null : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as T;
  };
  const stop = async () => {
    // VMs outlive the daemon, unless they are deleted.
    const vms = await call<{ id: string }[]>('GET', '/v1/vms').catch(() => []);
    await Promise.all(vms.map((v) => call('DELETE', `/v1/vms/${v.id}`).catch(() => undefined)));
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  const demo: Hypervisor['demo'] = async (name, more = {}) => {
    const vm = await call<{ id: string; name: string }>('POST', '/v1/vms', { name, image: 'demo', memory_mib: 256, start: true, ...more });
    await until(`the agent of ${name} is connected`, async () => (await call<{ agent: { connected: boolean } }>('GET', `/v1/vms/${vm.id}`)).agent.connected, () => output);
    return vm;
  };
  try {
    await serve();
    const operation = await call<{ id: string }>('POST', '/v1/images/demo');
    const built = await call<{ state: string; error: string }>('GET', `/v1/operations/${operation.id}?wait=120`);
    if (built.state !== 'succeeded') throw new Error(`the demo image: ${built.error}`);
    // A host that reported once, at an address where nobody is.
    await call('PUT', '/fleet/nodes/gone/heartbeat', { url: `http://127.0.0.1:${await freePort()}`, version: 'dev', vcpus: 8, memory_mib: 4096, free_vcpus: 6, free_memory_mib: 1024, vms: 1, backends: ['qemu'], labels: { rack: 'b' } }, fleetToken);
  } catch (e) {
    await stop();
    throw e;
  }
  return { url, folder, call, demo, end: () => end(child), serve, stop };
}

async function until(what: string, done: () => Promise<boolean>, output: () => string): Promise<void> {
  for (let i = 0; i < 600; i++) {
    if (await done().catch(() => false)) return;
    await new Promise((next) => setTimeout(next, 100));
  }
  throw new Error(`not after 60 s: ${what}:\n${output()}`);
}

/** Opens a page as somebody who is signed in already. */
export async function open(page: Page, url: string, token = adminToken): Promise<void> {
  await signIn(page, new URL(url).origin, token);
  await page.goto(url);
  await expect(page.getByRole('button', { name: 'Keyboard shortcuts' })).toBeVisible();
}
