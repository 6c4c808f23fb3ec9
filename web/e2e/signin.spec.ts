/** Signing in, out, and being shut out; and what each role is shown. */
import { dialog, expect, expectAccessible, expectNoSidewaysScroll, open, shot, test, tokens, world } from './console';

const { admin_username, admin_password, viewer_token } = world.full.credentials;

test('an operator signs in with a password and out again', async ({ page, request }) => {
  await page.goto('/sites');
  await page.getByLabel('Username').fill(admin_username);
  await page.getByLabel('Password').fill('wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('alert')).toBeVisible();
  await page.getByLabel('Password').fill(admin_password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  // The page that was asked for is there, not the first one.
  await expect(page.getByRole('heading', { name: 'Sites', level: 1 })).toBeVisible();
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
  expect(await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length])).toEqual(['', 0, 0]);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await expect(page.getByText('Your session has ended')).toHaveCount(0);
  expect(await page.context().cookies()).toEqual([]);
  const answer = await request.get(`${world.full.url}/api/v1/auth/me`, { headers: { 'X-Mainstay-Console': 'e2e', Cookie: `${cookie?.name}=${cookie?.value}` } });
  expect(answer.status(), 'the server has ended the session too').toBe(401);
});

for (const colorScheme of ['light', 'dark'] as const) {
  test(`the sign-in page is accessible in the ${colorScheme} theme, also when narrow`, async ({ page }) => {
    await page.emulateMedia({ colorScheme });
    for (const width of [1280, 380]) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto('/');
      await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
      await expectAccessible(page);
      await expectNoSidewaysScroll(page);
      await shot(page, `signin-${colorScheme}-${width}`);
    }
  });
}

test('a token is tried before it is taken', async ({ page }) => {
  await page.goto('/');
  await page.getByRole('button', { name: 'Use a token' }).click();
  await page.getByLabel('Token').fill('madm_nonsense');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('alert')).toBeVisible();
  await page.getByLabel('Token').fill(world.fixtures.sites['plant-2']?.agent ?? '');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('site\'s agent');
  await page.getByLabel('Token').fill(` ${viewer_token} `);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
});

test('single sign-on that is not set up is not offered, and its refusal is told', async ({ page }) => {
  await page.goto('/#refused=nobody%20in%20your%20groups%20may%20sign%20in%20here');
  await expect(page.getByRole('alert')).toHaveText('nobody in your groups may sign in here');
  await expect(page.getByRole('button', { name: 'Sign in with single sign-on' })).toHaveCount(0);
  await expect(page).toHaveURL('/');
});

test('a session opens every tab, survives a reload, and ends in all of them', async ({ page, context }) => {
  await open(page, '/sites', 'viewer');
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Sites', level: 1 })).toBeVisible();
  // A link that a colleague sent.
  const tab = await context.newPage();
  await tab.goto(`/devices/press-1`);
  await expect(tab.getByRole('heading', { name: 'press-1', level: 1 })).toBeVisible();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await expect(tab.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await tab.reload();
  await expect(tab.getByRole('heading', { name: 'Sign in' })).toBeVisible();
});

test('a session that ends in the middle of a form takes nothing of what was typed', async ({ page, request }) => {
  const session = (await (await request.post('/api/v1/auth/login', { data: { username: admin_username, password: admin_password } })).json()) as { token: string };
  await open(page, '/policies', 'admin', world.full.url, session.token);
  await page.getByRole('button', { name: 'Create a policy pack' }).first().click();
  const form = page.getByRole('dialog').filter({ hasText: 'Allowed images' });
  await form.getByLabel('Name', { exact: true }).fill('Half a name');
  await request.post('/api/v1/auth/logout', { headers: { Authorization: `Bearer ${session.token}` } });
  const again = await dialog(page, 'signin-again', 'Sign in again');
  await page.keyboard.press('Escape');
  await again.getByLabel('Username').fill(admin_username);
  await again.getByLabel('Password').fill(admin_password);
  await again.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(again).toHaveCount(0);
  await expect(form.getByLabel('Name', { exact: true })).toHaveValue('Half a name');
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
});

test('the token of single sign-on is taken from the fragment and gone from the address', async ({ page }) => {
  await page.goto(`/devices#oidc_token=${viewer_token}`);
  await expect(page.getByRole('heading', { name: 'Devices', level: 1 })).toBeVisible();
  expect(new URL(page.url()).hash).toBe('');
  expect(await page.evaluate(() => history.length)).toBeLessThanOrEqual(2);
});

test('a token that stops working leads to sign-in and back to the page', async ({ page, request }) => {
  const session = (await (await request.post('/api/v1/auth/login', { data: { username: admin_username, password: admin_password } })).json()) as { token: string };
  await open(page, '/routes', 'admin', world.full.url, session.token);
  await request.post('/api/v1/auth/logout', { headers: { Authorization: `Bearer ${session.token}` } });
  await expect(page.getByText('Your session has ended')).toBeVisible();
  await page.getByRole('button', { name: 'Use a token' }).click();
  await page.getByLabel('Token').fill(tokens.viewer);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Routes', level: 1 })).toBeVisible();
});

const viewerPages = ['/', '/sites', `/sites/${world.fixtures.sites['plant-1']?.id}`, '/devices', '/devices/press-1', '/campaigns', `/campaigns/${world.fixtures.campaign.paused}`, '/routes', `/routes/${world.fixtures.route.good}`, '/deadletters', '/deployments', `/deployments/${world.fixtures.deployment.running}`, '/policies'];

test('a viewer is shown no button that is not for viewers', async ({ page }) => {
  await open(page, '/', 'viewer');
  for (const path of viewerPages) {
    await page.goto(path);
    await expect(page.locator('.skeleton')).toHaveCount(0);
    await expect(page.locator('h1')).toBeVisible();
    await expect(page.locator('main').getByRole('button', { name: /^(Actions|Enroll|Make|Draft|Deploy|Edit|Start|Promote|Abort|Finish|Replay|Send|Create)\b/ })).toHaveCount(0);
  }
  await expect(page.getByRole('link', { name: 'Orgs' })).toHaveCount(0);
  await page.goto('/sites/tokens');
  await expect(page.getByText('There is no such page here')).toBeVisible();
  // A global viewer may prove the audit log, and try an image.
  await page.goto('/audit');
  await expect(page.getByRole('button', { name: 'Verify' })).toBeVisible();
});

test('an org admin sees what is the org’s, and neither orgs nor the proof of the audit log', async ({ page }) => {
  await open(page, '/sites', 'orgAdmin');
  await expect(page.getByRole('link', { name: 'acme-1' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'plant-1' })).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Enroll a site' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'Orgs' })).toHaveCount(0);
  await shot(page, 'org-admin-sites');
  await page.goto('/orgs');
  await expect(page.getByText('There is no such page here')).toBeVisible();
  await page.goto('/audit');
  await expect(page.getByRole('table', { name: 'Audit log' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Verify' })).toHaveCount(0);
  await page.goto('/policies');
  await page.getByRole('button', { name: 'Create a policy pack' }).first().click();
  const made = await dialog(page, 'policy-org-admin');
  await expect(made.getByLabel('Applies to').getByRole('option')).toHaveText(['acme-1']);
});

test('the theme is chosen, and remembered', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'light' });
  await open(page, '/sites');
  await page.getByLabel('Theme').selectOption('dark');
  await page.reload();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  expect(await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).toBe('rgb(14, 17, 22)');
});

test('on a narrow screen the navigation is a drawer', async ({ page }) => {
  await page.setViewportSize({ width: 380, height: 800 });
  await open(page, '/');
  await page.getByRole('button', { name: 'Open the navigation' }).click();
  await expect(page.getByRole('dialog', { name: 'Navigation' })).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'drawer-380');
  await page.getByRole('dialog', { name: 'Navigation' }).getByRole('link', { name: 'Devices' }).click();
  await expect(page.getByRole('heading', { name: 'Devices', level: 1 })).toBeVisible();
  await expect(page.getByRole('dialog', { name: 'Navigation' })).toHaveCount(0);
});
