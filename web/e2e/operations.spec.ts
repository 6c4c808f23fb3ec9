/** Alerts, activity, the audit log, orgs, and the overview of a system that is at work or has nothing yet. */
import { api, caller, choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, open, pictures, shot, test, world } from './console';
import { enroll, sha256 } from './fixtures';
import { startServer } from './server';

test('the overview measures rates while it is open, and follows what happens', async ({ page }) => {
  await open(page, '/');
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await expect(page.getByRole('figure', { name: 'Events of the fleet' })).toBeVisible({ timeout: 20_000 });
  await expect(page.locator('.plot-canvas canvas')).toHaveCount(2);
  await api('POST', '/activity', { entries: [{ message: 'the lights went out', level: 'warn' }] });
  await expect(page.getByText('the lights went out')).toBeVisible();
  await page.getByText('Show as a table').first().click();
  await expectAccessible(page);
  await shot(page, 'overview-rates', true);
});

test('plots begin with what the control plane remembers, and the time that they show stays with Back', async ({ page }) => {
  test.setTimeout(180_000);
  // It remembers minutes that are over.
  const remembered = () => api<{ points: unknown[] }>('GET', '/history').then((h) => h.points.length);
  await expect.poll(remembered, { timeout: 150_000, intervals: [2_000] }).toBeGreaterThan(2);
  await open(page, '/');
  const events = page.getByRole('figure', { name: 'Events of the fleet' });
  const ranges = page.getByRole('group', { name: 'Time that the plots show' });
  for (const again of [false, true]) {
    if (again) await page.reload();
    const began = Date.now();
    await events.getByText('Show as a table').click();
    const oldest = events.getByRole('row').last().locator('time');
    expect(Date.parse((await oldest.getAttribute('datetime')) ?? '')).toBeLessThan(began - 60_000);
    await expect(ranges.getByRole('button', { name: '1 hour' })).toHaveAttribute('aria-pressed', 'true');
  }
  const wide = ranges.getByRole('button', { name: '2 days' });
  await wide.focus();
  const asked = page.waitForResponse((r) => r.url().includes('/history?since='));
  await page.keyboard.press('Enter');
  expect((await asked).status()).toBe(200);
  await expect(wide).toHaveAttribute('aria-pressed', 'true');
  await expect(page).toHaveURL(/\/\?range=2d$/);
  await expectAccessible(page);
  await shot(page, 'overview-2d', true);
  await page.getByRole('link', { name: 'All alerts' }).click();
  await expect(page.getByRole('heading', { name: 'Alerts', level: 1 })).toBeVisible();
  await page.goBack();
  await expect(wide).toHaveAttribute('aria-pressed', 'true');
  // A reload asks for the same time.
  const askedAgain = page.waitForResponse((r) => r.url().includes('/history?since='));
  await page.reload();
  expect((await askedAgain).status()).toBe(200);
  await ranges.getByRole('button', { name: '1 hour' }).click();
  await expect(page).toHaveURL(/\/$/);

  await page.goto(`/routes/${world.fixtures.route.good}?range=6h`);
  await expect(ranges.getByRole('button', { name: '6 hours' })).toHaveAttribute('aria-pressed', 'true');
});

test('an empty system says what to do first', async ({ page }) => {
  const { url, credentials } = world.empty;
  for (const width of [380, 1280]) {
    await page.setViewportSize({ width, height: 860 });
    await open(page, '/', 'admin', url, credentials.admin_token);
    await expect(page.getByRole('heading', { name: 'Welcome' })).toBeVisible();
    await expectAccessible(page);
    await expectNoSidewaysScroll(page);
    await shot(page, `welcome-${width}`, true);
  }
  await page.getByRole('button', { name: 'Create a route' }).click();
  await expect(page.getByRole('dialog', { name: 'Create a route' })).toBeVisible();
  await page.keyboard.press('Escape');
  await page.goto(`${url}/sites`);
  await expect(page.getByRole('heading', { name: 'No sites yet' })).toBeVisible();
  await shot(page, 'sites-empty');
  await page.goto(url);
  await page.getByRole('button', { name: 'Enroll a site' }).click();
  await page.getByLabel('Name of the site').fill('the-first');
  await page.getByRole('button', { name: 'Create the token' }).click();
  const command = await page.getByRole('group', { name: 'Agent command' }).locator('pre').innerText();
  await enroll(caller(world.empty, credentials.admin_token), /--enrollment-token (\S+)/.exec(command)?.[1] ?? '', 'the-first');
  // The page behind is the overview now; what the dialog has to say stays.
  await expect(page.getByText('the-first has appeared.')).toBeVisible();
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await expect(page.getByText('There is no route yet')).toBeVisible();
});

test('activity is followed, narrowed to a level, and paused', async ({ page }) => {
  await open(page, '/activity');
  await api('POST', '/activity', { entries: [{ message: 'a door was forced', level: 'error' }] });
  await expect(page.getByText('a door was forced')).toBeVisible();
  await page.getByRole('combobox', { name: 'Level' }).selectOption('error');
  await expect(page.getByText('site plant-1 enrolled')).toHaveCount(0);
  await page.getByRole('button', { name: 'Pause' }).click();
  await api('POST', '/activity', { entries: [{ message: 'and a window', level: 'error' }] });
  await page.getByRole('button', { name: 'Follow again' }).click();
  await expect(page.getByText('and a window')).toBeVisible();
});

test('what needs attention is grouped, critical alerts first, and leads to the others of its kind', async ({ page }) => {
  const { id: site, agent } = world.fixtures.sites['plant-2'] ?? { id: '', agent: '' };
  for (let n = 1; n <= 10; n++) {
    await api('POST', '/devices/register', { device_id: `meter-${n}` }, agent);
    await api('POST', `/devices/meter-${n}/ota`, { version: '2', url: 'https://firmware.example.com/2.bin', sha256 });
    await api('POST', `/agent/devices/meter-${n}/ota/status`, { site_id: site, status: { state: 'failed' } }, agent);
  }
  await expect.poll(async () => (await api<unknown[]>('GET', '/alerts?kind=ota_failed&limit=100')).length).toBeGreaterThanOrEqual(10);
  await open(page, '/');
  const card = page.locator('section.card').filter({ has: page.getByRole('heading', { name: 'Needs attention' }) });
  await expect(card.getByText('site quiet-1 is offline')).toBeVisible();
  const severities = await card.locator('.badge').allTextContents();
  expect(severities).toEqual([...severities].sort());
  await shot(page, 'overview-attention', true);
  await card.getByRole('link', { name: /^and \d+ more: ota failed$/ }).click();
  await expect(page.getByRole('combobox', { name: 'Kind' })).toHaveValue('ota_failed');
  await expect(page.getByRole('row', { name: /site quiet-1 is offline/ })).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Kind' }).selectOption('');
  await page.getByRole('combobox', { name: 'Severity' }).selectOption('critical');
  await expect(page.getByRole('row', { name: /site quiet-1 is offline/ })).toBeVisible();
  await expect(page.getByRole('row', { name: /update of device/ })).toHaveCount(0);
});

test('a group of alerts narrows the list to its kind or its site, and says how many of them are handled', async ({ page }) => {
  await open(page, '/alerts');
  const groups = page.getByRole('group', { name: 'Alerts in groups' });
  const kind = groups.getByRole('button', { name: /^ota failed \d+/ });
  await kind.click();
  await expect(kind).toHaveAttribute('aria-pressed', 'true');
  await expect(page).toHaveURL(/kind=ota_failed/);
  await expect(page.getByRole('row', { name: /site quiet-1 is offline/ })).toHaveCount(0);
  await kind.click();
  await groups.getByRole('combobox', { name: 'Group by' }).selectOption('site');
  await groups.getByRole('button', { name: /^quiet-1 \d+/ }).click();
  await expect(page).toHaveURL(/by=site/);
  await expect(page.getByRole('row', { name: /site quiet-1 is offline/ })).toBeVisible();
  await expect(page.getByRole('row', { name: /update of device/ })).toHaveCount(0);
  await shot(page, 'alerts-groups', true);
});

test('an alert leads to what it is about, and does not take the place of others', async ({ page }) => {
  await open(page, '/alerts');
  const box = await page.getByRole('row', { name: /site quiet-1 is offline/ }).boundingBox();
  expect(box?.height).toBeLessThan(110);
  await pictures(page, 'alerts-seen');
  await page.getByRole('row', { name: /site quiet-1 is offline/ }).getByRole('link').first().click();
  await expect(page.getByRole('heading', { name: 'quiet-1' })).toBeVisible();
});

test('an alert is acknowledged, silenced and heard again', async ({ page }) => {
  await open(page, '/alerts');
  const row = page.getByRole('row', { name: /site quiet-1 is offline/ });
  await choose(page, 'Actions for site quiet-1 is offline', 'Acknowledge');
  const acknowledging = await dialog(page, 'alert-acknowledge');
  await acknowledging.getByLabel('Note').fill('a technician is on the way');
  await acknowledging.getByRole('button', { name: 'Acknowledge', exact: true }).click();
  await expect(row).toContainText('acknowledged by');
  await expect(row).toContainText('a technician is on the way');

  await choose(page, 'Actions for site quiet-1 is offline', 'Silence');
  const silencing = await dialog(page, 'alert-silence');
  await silencing.getByRole('button', { name: 'Silence', exact: true }).click();
  await expect(silencing.getByLabel('Reason')).toBeFocused();
  await silencing.getByLabel('Reason').fill('the line is being rebuilt');
  await silencing.getByRole('button', { name: 'Silence', exact: true }).click();
  await expect(row).toContainText('silenced until');
  await expect(row).toContainText('the line is being rebuilt');
  await expectAccessible(page);
  await shot(page, 'alerts-handled', true);

  await page.getByRole('combobox', { name: 'Handled' }).selectOption('open');
  await expect(row).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Handled' }).selectOption('silenced');
  await choose(page, 'Actions for site quiet-1 is offline', 'End the silence');
  await page.getByRole('dialog').getByRole('button', { name: 'End the silence' }).click();
  await expect(row).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Handled' }).selectOption('');
  await expect(row).toContainText('acknowledged by');
  await expect(row).not.toContainText('silenced');
});

test('the audit log is narrowed, opened and verified', async ({ page }) => {
  await open(page, '/audit');
  const table = page.getByRole('table', { name: 'Audit log' });
  await page.getByLabel('Action, exactly').fill('campaign.start');
  await expect(table.getByRole('button', { name: 'campaign.start' }).first()).toBeVisible();
  await expect(table.getByText('site.enroll')).toHaveCount(0);
  await table.getByRole('button', { name: 'campaign.start' }).last().click();
  await expect(await dialog(page, 'audit-entry')).toContainText('Hash');
  await page.keyboard.press('Escape');
  await page.getByLabel('From').fill('2001-01-01T00:00');
  await page.getByLabel('to', { exact: true }).fill('2001-01-02T00:00');
  await expect(page.getByText('No entry matches')).toBeVisible();
  await page.getByRole('button', { name: 'Verify' }).click();
  const proof = await dialog(page, 'audit-verify');
  await expect(proof.getByText('The log is whole')).toBeVisible();
});

test('the audit log leaves out registrations of devices until they are asked for', async ({ page }) => {
  const { agent } = world.fixtures.sites['plant-2'] ?? { agent: '' };
  await api('POST', '/devices/register', { device_id: 'noise-1' }, agent);
  await open(page, '/audit');
  const table = page.getByRole('table', { name: 'Audit log' });
  await expect(table.getByRole('row')).not.toHaveCount(0);
  await expect(table.getByText('device.register')).toHaveCount(0);
  await page.getByLabel('Show registrations of devices').check();
  await expect(table.getByRole('row', { name: /device noise-1 registered/ })).toBeVisible();
  await expectAccessible(page);
  await page.setViewportSize({ width: 380, height: 800 });
  await expectNoSidewaysScroll(page);
  await shot(page, 'audit-registrations-380');
});

test('an audit entry of a twin says what changed, with whole ids', async ({ page }) => {
  const site = world.fixtures.sites['plant-2'] ?? { id: '', agent: '' };
  await api('POST', '/devices/register', { device_id: 'tank-1' }, site.agent);
  await api('PUT', '/twins/tank-1/desired', { desired: { mode: 'auto', limit: 1 } });
  await api('PUT', '/twins/tank-1/desired', { desired: { mode: 'manual', limit: 1 } });
  await open(page, '/audit');
  await page.getByLabel('Action, exactly').fill('twin.desired');
  const table = page.getByRole('table', { name: 'Audit log' });
  await table.getByRole('row', { name: /desired state of tank-1 replaced/ }).first().getByRole('button', { name: 'twin.desired' }).click();
  const entry = await dialog(page, 'audit-twin');
  const changed = entry.getByRole('table', { name: 'Before compared with After' });
  await expect(changed).toContainText('"mode": "auto"');
  await expect(changed).toContainText('"mode": "manual"');
  await expect(changed).not.toContainText('limit');
  await expect(entry.getByText(site.id, { exact: true })).toBeVisible();
});

test('when the control plane is down, every page says that what it shows is old', async ({ page }) => {
  const server = await startServer();
  try {
    await open(page, '/', 'admin', server.url, server.credentials.admin_token);
    await expect(page.getByRole('heading', { name: 'Welcome' })).toBeVisible();
    await server.stop();
    await expect(page.getByText(/The control plane does not answer\. What is shown was so at \d\d:\d\d:\d\d/)).toBeVisible({ timeout: 30_000 });
    await expectAccessible(page);
    await page.setViewportSize({ width: 380, height: 800 });
    await page.emulateMedia({ colorScheme: 'dark' });
    await expectNoSidewaysScroll(page);
    await shot(page, 'silent-dark-380');
    await page.getByRole('button', { name: 'Open the navigation' }).click();
    await page.getByRole('link', { name: 'Sites', exact: true }).filter({ visible: true }).click();
    await expect(page.getByText('The control plane does not answer.')).toBeVisible();
  } finally {
    await server.stop();
  }
});

test('an org is made with its tokens shown once, and deleted', async ({ page }) => {
  await open(page, '/orgs');
  await page.getByRole('button', { name: 'Create an org' }).click();
  const form = await dialog(page, 'org');
  await form.getByLabel('Name').fill('Nordwind');
  await page.keyboard.press('Escape');
  const discard = await dialog(page, 'discard', 'Discard what you typed?');
  await page.keyboard.press('Escape');
  await expect(discard).toHaveCount(0);
  await expect(form.getByLabel('Name')).toHaveValue('Nordwind');
  await form.getByRole('button', { name: 'Create the org' }).click();
  const made = await dialog(page, 'org-tokens', 'Tokens of Nordwind');
  // Nothing but its own button takes the only sight of the tokens away.
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await expect(made).toBeVisible();
  const token = await made.getByRole('group', { name: /^Viewer token/ }).locator('pre').innerText();
  await made.getByRole('button', { name: 'I have copied them' }).click();
  expect(await api('GET', '/auth/me', undefined, token)).toMatchObject({ role: 'viewer', kind: 'org' });
  await choose(page, 'Actions for Nordwind', 'Delete');
  await (await dialog(page, 'org-delete')).getByRole('button', { name: 'Delete the org' }).click();
  await expect(page.getByText('Nordwind is deleted.')).toBeVisible();
  await expect(api('GET', '/auth/me', undefined, token)).rejects.toThrow('401');
});

test('the shortcuts are shown', async ({ page }) => {
  await open(page, '/sites');
  await page.keyboard.press('?');
  await dialog(page, 'shortcuts', 'Keyboard shortcuts');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
});
