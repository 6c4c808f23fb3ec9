/** Finding things, and acting on many of them. */
import { api, dialog, expect, expectAccessible, open, pictures, test, world } from './console';

test('the palette leads to a page, and to an object that no page has loaded', async ({ page }) => {
  await open(page, '/routes');
  await page.keyboard.press('Control+k');
  const palette = page.getByRole('dialog', { name: 'Go to' });
  await expect(palette.getByRole('combobox')).toBeFocused();
  await page.keyboard.type('dead');
  await expect(palette.getByRole('option', { selected: true })).toContainText('Dead letters');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Dead letters', level: 1 })).toBeVisible();
  await page.getByRole('button', { name: 'Go to' }).click();
  await palette.getByRole('combobox').fill('press-1');
  await expect(palette.getByRole('option', { name: /press-1.*device/ }).first()).toBeVisible();
  await expectAccessible(page);
  await pictures(page, 'palette');
  await palette.getByRole('option', { name: /press-1.*device/ }).first().click();
  await expect(page.getByRole('heading', { name: 'press-1', level: 1 })).toBeVisible();
  await page.keyboard.press('Control+k');
  await palette.getByRole('combobox').fill('no such thing anywhere');
  await expect(palette.getByText('Nothing is called so.')).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(palette).toHaveCount(0);
});

test('the server finds a device by a part of its name, in any case', async ({ page }) => {
  await open(page, '/devices?filter=PRESS-1');
  const table = page.getByRole('table', { name: 'Devices' });
  await expect(page.getByRole('searchbox', { name: 'Search all devices' })).toHaveValue('PRESS-1');
  await expect(table.getByRole('link', { name: 'press-1', exact: true })).toBeVisible();
  await expect(table.getByRole('link', { name: 'press-2', exact: true })).toHaveCount(0);
});

test('many are acted on at once, those that the action does not apply to are left out, and what failed is told', async ({ page }) => {
  const names = ['bulk-1', 'bulk-2', 'bulk-3'];
  for (const name of names) await api('POST', '/policy-packs', { name, allowed_images: ['*'], enabled: name !== 'bulk-3' });
  await open(page, '/policies');
  const table = page.getByRole('table', { name: 'Policy packs' });
  for (const name of names) await table.getByRole('checkbox', { name: `Select ${name}` }).check();
  await expect(page.getByText('3 packs selected')).toBeVisible();
  await expectAccessible(page);
  await pictures(page, 'selection');
  await page.getByRole('button', { name: 'Disable', exact: true }).click();
  const disable = await dialog(page, 'bulk', /Disable 2 packs/);
  await expect(disable).toContainText('Left out: 1 pack');
  await disable.getByRole('button', { name: 'Disable 2 packs' }).click();
  await expect(disable).toContainText('2 of 2 packs done');
  await disable.getByText('Close', { exact: true }).click();
  for (const name of names) await table.getByRole('checkbox', { name: `Select ${name}` }).check();
  // One of them is deleted by somebody else meanwhile.
  const packs = await api<{ id: string; name: string }[]>('GET', '/policy-packs?limit=1000');
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await api('DELETE', `/policy-packs/${packs.find((p) => p.name === 'bulk-2')?.id}`);
  const remove = page.getByRole('dialog', { name: /Delete 3 packs/ });
  await remove.getByRole('button', { name: 'Delete 3 packs' }).click();
  await expect(remove).toContainText('2 of 3 packs done, 1 failed');
  await expect(remove).toContainText('bulk-2: ');
  await dialog(page, 'bulk-failed', /Delete 3 packs/);
  await remove.getByText('Close', { exact: true }).click();
  await expect(table.getByText('bulk-1')).toHaveCount(0);
});

test('a site in trouble says why, since when, and what to do, and the alert is handled there', async ({ page }) => {
  const site = world.fixtures.sites['quiet-1']?.id ?? '';
  await open(page, `/sites/${site}`);
  const trouble = page.getByRole('region', { name: 'What needs attention' });
  await expect(trouble).toContainText(/since .* ago|since now/);
  await expect(trouble).toContainText('Check the power and the network');
  await trouble.getByRole('button', { name: /^Actions for the alert/ }).click();
  await page.getByRole('menuitem', { name: 'Acknowledge' }).click();
  await page.getByRole('dialog', { name: 'Acknowledge the alert' }).getByRole('button', { name: 'Acknowledge' }).click();
  await expect(trouble).toContainText('acknowledged by');
  await pictures(page, 'site-trouble');
});

test('a tile leads to what it counts', async ({ page }) => {
  await open(page, '/');
  await page.getByRole('link', { name: /^Sites online/ }).click();
  await expect(page).toHaveURL('/sites?status=offline');
  await expect(page.getByRole('table', { name: 'Sites' }).getByText('quiet-1')).toBeVisible();
});

test('Back and a reload lead to the same rows, narrowed and sorted as before', async ({ page }) => {
  await open(page, '/devices');
  await page.getByRole('searchbox', { name: 'Search all devices' }).fill('press');
  await page.getByRole('button', { name: /^Name/ }).click();
  await expect(page).toHaveURL(/filter=press.*sort=|sort=.*filter=press/);
  const address = page.url();
  const first = page.getByRole('table', { name: 'Devices' }).getByRole('link').first();
  const name = (await first.textContent()) ?? '';
  await first.click();
  await expect(page.getByRole('heading', { name, level: 1 })).toBeVisible();
  await page.goBack();
  await expect(page).toHaveURL(address);
  await expect(page.getByRole('searchbox', { name: 'Search all devices' })).toHaveValue('press');
  await expect(first).toHaveText(name);
  await page.reload();
  await expect(page.getByRole('searchbox', { name: 'Search all devices' })).toHaveValue('press');
  await expect(first).toHaveText(name);
  await pictures(page, 'filters-kept');
});

test('Escape asks before it closes a dialog that was typed into', async ({ page }) => {
  await open(page, '/routes');
  await page.getByRole('button', { name: 'Create a route' }).first().click();
  await page.getByLabel('Name', { exact: true }).fill('half done');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('button', { name: 'Discard' })).toBeVisible();
  await pictures(page, 'discard');
  await page.keyboard.press('Escape');
  await expect(page.getByLabel('Name', { exact: true })).toHaveValue('half done');
});

test('the overview shows what happened before it was opened, and tiles and alerts that lead on', async ({ page }) => {
  await open(page, '/');
  await expect(page.getByRole('figure').first()).toBeVisible();
  await expect(page.getByRole('link', { name: /^Sites online/ })).toHaveAttribute('href', '/sites?status=offline');
  await page.setViewportSize({ width: 1440, height: 900 });
  await pictures(page, 'overview-whole');
});
