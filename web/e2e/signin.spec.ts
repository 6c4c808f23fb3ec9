/** Signing in, out, and being shut out; and what each role is shown. */
import { dialog, expect, expectAccessible, expectNoSidewaysScroll, open, shot, test, tokens, world } from './console';

const { admin_username, admin_password, viewer_token } = world.full.credentials;

test('an operator signs in with a password and out again', async ({ page }) => {
  await page.goto('/sites');
  await page.getByLabel('Username').fill(admin_username);
  await page.getByLabel('Password').fill('wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('alert')).toBeVisible();
  await page.getByLabel('Password').fill(admin_password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  // The page that was asked for is there, not the first one.
  await expect(page.getByRole('heading', { name: 'Sites', level: 1 })).toBeVisible();
  const token = await page.evaluate(() => sessionStorage.getItem('mainstay.edge.token'));
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await expect(page.getByText('Your session is over')).toHaveCount(0);
  expect(await page.evaluate(() => sessionStorage.getItem('mainstay.edge.token'))).toBeNull();
  const answer = await page.request.get('/api/v1/auth/me', { headers: { Authorization: `Bearer ${token}` } });
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
  await expect(page.getByRole('alert')).toContainText('site’s agent');
  await page.getByLabel('Token').fill(` ${viewer_token} `);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
});

test('single sign-on that is not set up is explained kindly', async ({ page }) => {
  await page.goto('/');
  await page.getByRole('button', { name: 'Sign in with single sign-on' }).click();
  await expect(page.getByText('Single sign-on is not set up on this server')).toBeVisible();
  await expect(page).toHaveURL('/');
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
  await expect(page.getByText('Your session is over')).toBeVisible();
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
  await page.getByRole('button', { name: 'Make a pack' }).first().click();
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
