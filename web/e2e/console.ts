/** What all end-to-end tests share: who signs in, and what every page and dialog must keep. */
import { AxeBuilder } from '@axe-core/playwright';
import { test as base, expect, type Page } from '@playwright/test';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { caller, type Call, type Fixtures } from './fixtures';
import type { Credentials } from './server';
import { signIn } from './session';

export { caller, expect };

interface World {
  full: { url: string; credentials: Credentials };
  empty: { url: string; credentials: Credentials };
  fixtures: Fixtures;
  sink: string;
}

export type Role = 'admin' | 'viewer' | 'orgAdmin';

function read(): World {
  const text = process.env['E2E'];
  if (!text) throw new Error('the global setup has not run');
  return JSON.parse(text) as World;
}

export const world = read();
export const artifacts = join(import.meta.dirname, 'artifacts');
mkdirSync(artifacts, { recursive: true });

/** Calls the API as the global admin. */
export const api: Call = caller(world.full, world.full.credentials.admin_token);

export const tokens: Record<Role, string> = {
  admin: world.full.credentials.admin_token,
  viewer: world.full.credentials.viewer_token,
  orgAdmin: world.fixtures.org.admin_token,
};

/** A page of the filled server; what the browser complains of fails the test. */
export const test = base.extend<{ complaints: string[] }>({
  baseURL: world.full.url,
  complaints: [
    async ({ page }, use) => {
      const complaints: string[] = [];
      page.on('pageerror', (e) => complaints.push(String(e)));
      page.on('console', (m) => {
        // Answers of 4xx are logged by the browser; pages say them in words of their own.
        if (m.type() === 'error' && !m.text().startsWith('Failed to load resource')) complaints.push(m.text());
      });
      await use(complaints);
      expect(complaints).toEqual([]);
    },
    { auto: true },
  ],
});

/** Opens a page as somebody who is signed in already. */
export async function open(page: Page, path: string, role: Role = 'admin', url = world.full.url, token = tokens[role]): Promise<void> {
  await signIn(page, url, token);
  await page.goto(url + path);
  await expect(page.locator('h1')).toBeVisible();
}

/** No violation of WCAG 2 A and AA. The rows of a long list are alike: the first twenty are examined. */
export async function expectAccessible(page: Page): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).exclude('tbody tr:nth-child(n+21)').exclude('.log li:nth-child(n+21)').withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']).analyze();
  expect(violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(' ')).join(', ')}`)).toEqual([]);
}

/** The page itself never scrolls sideways. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  expect(wide, 'pixels by which the page is wider than the window').toBe(0);
}

/** Nothing moves, since motion is reduced. */
export async function shot(page: Page, name: string, fullPage = false): Promise<void> {
  await page.screenshot({ path: join(artifacts, `${name}.png`), fullPage });
}

/** A picture of the whole page in each theme. */
export async function pictures(page: Page, name: string): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await shot(page, `${name}-${colorScheme}`, true);
  }
}

/** The open dialog: it must be accessible, and leaves a picture. */
export async function dialog(page: Page, name: string, title?: string | RegExp) {
  const open = page.locator('dialog.dialog[open]').filter(title === undefined ? {} : { has: page.getByRole('heading', { name: title }) });
  await expect(open).toBeVisible();
  await expectAccessible(page);
  await shot(page, `dialog-${name}`);
  return open;
}

/** Chooses an action from the menu of a row, or of a page. */
export async function choose(page: Page, menu: string, action: string): Promise<void> {
  await page.getByRole('button', { name: menu, exact: true }).click();
  await page.getByRole('menuitem', { name: action, exact: true }).click();
}
