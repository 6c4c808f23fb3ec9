/** A storage gateway for the tests, with the backend `local` in a folder of its own. The folder `gone` of its settings is none. */
import { expect, type Page } from '@playwright/test';
import { createHmac } from 'node:crypto';
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './fixtures';
import { binary, end, freePort } from './server';
import type { Store } from './s3';
import { signIn } from './session';

const secret = 'the-secret-of-the-tests-of-the-storage-gateway';

export interface Gateway {
  url: string;
  /** A token as somebody else issues it. */
  token: (name: string, role: 'viewer' | 'operator' | 'admin', tenant?: string) => string;
  /** Calls the API as an admin. */
  call: <T = unknown>(method: string, path: string, body?: unknown) => Promise<T>;
  /** Calls what begins a job, and waits for the job's end. The answer names what the job is about. */
  done: <T>(method: string, path: string, body?: unknown) => Promise<T>;
  stop: () => Promise<void>;
}

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Starts a gateway. One without tokens lets everybody in. */
export async function startGateway({ tokens = true, store }: { tokens?: boolean; /** What the entry `offsite` of its setting s3-buckets leads to. */ store?: Store } = {}): Promise<Gateway> {
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-store-e2e-'));
  mkdirSync(join(folder, 'local'));
  writeFileSync(join(folder, 'gone'), 'no folder');
  if (store) writeFileSync(join(folder, 'offsite.json'), JSON.stringify({ endpoint: store.url, access_key: 'access', secret_key: 'secret-of-the-tests', bucket: store.bucket }), { mode: 0o600 });
  const url = `http://127.0.0.1:${await freePort()}`;
  const child: ChildProcess = spawn(binary, ['serve', 'storage'], {
    cwd: folder,
    env: {
      ...process.env,
      STORE_LISTEN: url.replace('http://', ''),
      STORE_GRPC_ADDR: 'off',
      STORE_DATA: join(folder, 'data'),
      STORE_DIRECTORIES: `local=${join(folder, 'local')},gone=${join(folder, 'gone')}`,
      ...(store && { STORE_S3_BUCKETS: `offsite=${join(folder, 'offsite.json')}` }),
      STORE_MONITOR_INTERVAL_SECS: '1',
      STORE_AUTH_REQUIRED: String(tokens),
      STORE_JWT_SECRET: secret,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const token: Gateway['token'] = (sub, role, tenant) => {
    const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ sub, role, ...(tenant && { tenant }), exp: Math.floor(Date.now() / 1000) + 3600 })}`;
    return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
  };
  const call: Gateway['call'] = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${url}/api/store/v1${path}`, {
      method,
      headers: { ...(tokens && { Authorization: `Bearer ${token('ada', 'admin')}` }), ...(body !== undefined && { 'Content-Type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text ? JSON.parse(text) : undefined) as T;
  };
  const done: Gateway['done'] = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const begun = await call<{ job_id: string; resource: T }>(method, path, body);
    const job = await until(`the end of ${method} ${path}`, () => call<{ state: string; error?: { message: string } }>('GET', `/jobs/${begun.job_id}`), (j) => ['succeeded', 'failed'].includes(j.state));
    if (job.state !== 'succeeded') throw new Error(`${method} ${path}: ${job.state} ${job.error?.message ?? ''}`);
    return begun.resource;
  };
  const stop = async () => {
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await until('the gateway is ready', () => fetch(`${url}/readyz`).then((r) => r.ok, () => output), (ok) => ok === true);
    const [local] = await call<{ id: string }[]>('GET', '/backends');
    await call('POST', `/backends/${local?.id}/discover`);
  } catch (e) {
    await stop();
    throw e;
  }
  return { url, token, call, done, stop };
}

/** Opens a page as somebody who is signed in already. */
export async function open(page: Page, g: Gateway, path: string, token = g.token('ada', 'admin')): Promise<void> {
  await signIn(page, g.url, token);
  await page.goto(g.url + path);
  await expect(page.getByRole('button', { name: 'Keyboard shortcuts' })).toBeVisible();
}
