/** One workspace: the switcher between the consoles of an installation, and one sign-in for all of them. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, type Page } from '@playwright/test';
import { expectAccessible, expectNoSidewaysScroll, shot } from './console';
import { binary, end, freePort } from './server';
import { signIn } from './session';

interface Installation {
  edge: string;
  lb: string;
  tokens: { edge: { admin_token: string; viewer_token: string }; lb: { readonly_key: string } };
  stop: () => Promise<void>;
}

async function until(url: string, output: () => string): Promise<void> {
  for (let i = 0; i < 300; i++) {
    if (await fetch(`${url}/healthz`).then((r) => r.ok, () => false)) return;
    await new Promise((next) => setTimeout(next, 100));
  }
  throw new Error(`${url} does not answer after 30 s:\n${output()}`);
}

/** Two services on this machine, as a developer starts them. */
async function startDev(): Promise<Installation> {
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-switch-'));
  const [edge, lb, metrics] = [await freePort(), await freePort(), await freePort()];
  const child = spawn(binary, ['dev', '--data', folder, '--only', 'edge,lb'], {
    cwd: folder,
    env: { ...process.env, EDGE_LISTEN: `127.0.0.1:${edge}`, LB_LISTEN: `127.0.0.1:${lb}`, LB_METRICS_LISTEN: `127.0.0.1:${metrics}`, LB_BPF_DIR: join(folder, 'bpf') },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const urls = { edge: `http://127.0.0.1:${edge}`, lb: `http://127.0.0.1:${lb}` };
  for (const url of Object.values(urls)) await until(url, () => output);
  const tokens = JSON.parse(readFileSync(join(folder, 'credentials.json'), 'utf8')) as Installation['tokens'];
  return {
    ...urls,
    tokens,
    stop: async () => {
      await end(child);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const switchTo = async (page: Page, service: string) => {
  await page.getByRole('button', { name: 'Switch to another service' }).click();
  await page.getByRole('link', { name: service }).click();
};

test.describe('in dev', () => {
  let all: Installation;
  test.beforeAll(async () => {
    all = await startDev();
  });
  test.afterAll(async () => {
    await (all as Installation | undefined)?.stop();
  });

  test('one sign-in opens all consoles, and leaves no ticket in the address', async ({ page }) => {
    await signIn(page, all.edge, all.tokens.edge.admin_token);
    await page.goto(`${all.edge}/sites`);
    await page.getByRole('button', { name: 'Switch to another service' }).click();
    await expect(page.getByRole('link', { name: 'Edge control plane' })).toHaveAttribute('aria-current', 'true');
    await expectAccessible(page);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await shot(page, `switcher-${colorScheme}`);
    }
    await page.getByRole('link', { name: 'Load balancer' }).click();
    await expect(page.getByRole('heading', { name: 'Overview', level: 1 })).toBeVisible();
    await expect(page).toHaveURL(`${all.lb}/`);
    await expect(page.getByText('key-1', { exact: true })).toBeVisible();
    // Back, without signing in once more.
    await switchTo(page, 'Edge control plane');
    await expect(page).toHaveURL(`${all.edge}/`);
    await expect(page.getByRole('link', { name: 'Sites', exact: true })).toBeVisible();
    const names = (await page.context().cookies()).map((c) => c.name.replace(/_\d+$/, '')).sort();
    expect(names).toEqual(['mainstay_edge', 'mainstay_lb']);
  });

  test('whoever may only read there may only read here', async ({ page }) => {
    await signIn(page, all.lb, all.tokens.lb.readonly_key);
    await page.goto(all.lb);
    await switchTo(page, 'Edge control plane');
    await expect(page.getByText('viewer, sees everything')).toBeVisible();
  });

  test('a ticket that was used is refused, and one can sign in otherwise', async ({ page }) => {
    await page.goto(`${all.edge}/#ticket=mst_used`);
    await expect(page.getByRole('alert')).toContainText('the ticket is not good');
    await expect(page).toHaveURL(`${all.edge}/`);
    await expect(page.getByRole('button', { name: 'Use a token' })).toBeVisible();
  });

  test('the switcher is in the drawer of a narrow window', async ({ page }) => {
    await page.setViewportSize({ width: 360, height: 740 });
    await signIn(page, all.edge, all.tokens.edge.admin_token);
    await page.goto(all.edge);
    await page.getByRole('button', { name: 'Open the navigation' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Switch to another service' }).click();
    await expect(page.getByRole('dialog').getByRole('link', { name: 'Load balancer' })).toBeVisible();
    await expectNoSidewaysScroll(page);
    await shot(page, 'switcher-360');
  });
});

test('in production a document names the services, also one that is down', async ({ page }) => {
  const folder = mkdtempSync(join(tmpdir(), 'mainstay-workspace-'));
  const [port, metrics, gone] = [await freePort(), await freePort(), await freePort()];
  const url = `http://127.0.0.1:${port}`;
  const document = join(folder, 'workspace.yaml');
  writeFileSync(document, `services:\n  - {title: Balancer of rack 1, url: "${url}"}\n  - {title: Storage, url: "http://127.0.0.1:${gone}"}\n`);
  writeFileSync(join(folder, 'lb.yaml'), 'interface: lo\nvips: []\n');
  const child = spawn(binary, ['serve', 'lb', '--config', join(folder, 'lb.yaml'), '--listen', `127.0.0.1:${port}`, '--metrics-listen', `127.0.0.1:${metrics}`, '--bpf-dir', join(folder, 'bpf'), '--workspace', document], { stdio: 'ignore' });
  try {
    await until(url, () => '');
    await page.goto(url);
    await page.getByRole('button', { name: 'Switch to another service' }).click();
    await expect(page.getByRole('link', { name: 'Balancer of rack 1' })).toHaveAttribute('aria-current', 'true');
    await expect(page.getByRole('link', { name: 'Storage' })).toContainText('does not answer');
    await expectAccessible(page);
    await shot(page, 'switcher-down');
  } finally {
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  }
});
