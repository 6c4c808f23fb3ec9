/** Devices, their twins, their updates. */
import { api, choose, dialog, expect, open, test, world } from './console';
import { sha256 } from './fixtures';

test('a device that was updated has its new firmware, one whose update failed the old', async ({ page }) => {
  const devices = await api<{ device_id: string; outcome: string }[]>('GET', `/ota/campaigns/${world.fixtures.campaign.paused}/devices`);
  const named = (outcome: string) => devices.find((d) => d.outcome === outcome)?.device_id ?? outcome;
  await open(page, '/devices');
  const table = page.getByRole('table', { name: 'Devices' });
  await expect(table.getByRole('row', { name: new RegExp(`^Select ${named('succeeded')} `) })).toContainText('2.0.0');
  await expect(table.getByRole('row', { name: new RegExp(`^Select ${named('failed')} `) })).toContainText('1.9.2');
  // One that says it in its twin.
  const { id: site, agent } = world.fixtures.sites['plant-2'] ?? { id: '', agent: '' };
  await api('POST', '/devices/register', { device_id: 'valve-1', firmware_version: '1.0' }, agent);
  await api('POST', '/agent/twins/valve-1/reported', { site_id: site, reported: { firmware: '1.1' } }, agent);
  await open(page, '/devices/valve-1');
  await expect(page.getByText('1.1', { exact: true })).toBeVisible();
});

test('the desired state is edited; what is no JSON is said with its line', async ({ page }) => {
  await open(page, '/devices/press-2');
  await page.getByRole('button', { name: 'Edit' }).click();
  const editor = await dialog(page, 'desired');
  await editor.getByLabel('Desired state').fill('{\n  "mode": auto\n}');
  await expect(editor.getByText(/^Line 2: /)).toBeVisible();
  await expect(editor.getByRole('button', { name: 'Save' })).toBeDisabled();
  await dialog(page, 'desired-invalid');
  await editor.getByLabel('Desired state').fill('{"mode": "manual", "limit": 3}');
  await editor.getByRole('button', { name: 'Format' }).click();
  await expect(editor.getByLabel('Desired state')).toHaveValue('{\n  "mode": "manual",\n  "limit": 3\n}');
  await expect(editor.getByRole('table', { name: /compared with/ })).toContainText('"mode": "manual"');
  await dialog(page, 'desired-changed');
  await editor.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('is saved as version')).toBeVisible();
  expect(await api('GET', '/twins/press-2')).toMatchObject({ desired: { mode: 'manual', limit: 3 } });
});

test('a change that somebody else made meanwhile is shown, and mine is reapplied to it', async ({ page }) => {
  const base = { mode: 'auto', limit: 1, zone: { a: 1, b: 2 } };
  await api('PUT', '/twins/press-3/desired', { desired: base });
  await open(page, '/devices/press-3');
  await expect(page.getByText('"auto"')).toBeVisible();
  await page.getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('dialog', { name: 'Desired state of press-3' });
  await editor.getByLabel('Desired state').fill(JSON.stringify({ ...base, mode: 'manual', zone: { a: 9, b: 2 } }));
  await api('PUT', '/twins/press-3/desired', { desired: { ...base, mode: 'off', zone: { a: 1, b: 7 } } });
  await editor.getByRole('button', { name: 'Save' }).click();
  const conflict = await dialog(page, 'desired-conflict', 'Somebody else has changed this meanwhile');
  await expect(conflict.getByText('Both of you changed mode.')).toBeVisible();
  await conflict.getByRole('tab', { name: 'What they changed' }).click();
  await expect(conflict.getByRole('table')).toContainText('"mode": "off"');
  await conflict.getByRole('button', { name: 'Reapply mine to theirs' }).click();
  await expect(editor.getByText('yours is taken there')).toBeVisible();
  await editor.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('is saved as version')).toBeVisible();
  expect(await api('GET', '/twins/press-3')).toMatchObject({ desired: { mode: 'manual', limit: 1, zone: { a: 9, b: 7 } } });
});

test('a change that somebody else made meanwhile can be taken as it is', async ({ page }) => {
  await api('PUT', '/twins/press-4/desired', { desired: { mode: 'auto' } });
  await open(page, '/devices/press-4');
  await expect(page.getByText('"auto"')).toBeVisible();
  await page.getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('dialog', { name: 'Desired state of press-4' });
  await editor.getByLabel('Desired state').fill('{"mode": "manual"}');
  await api('PUT', '/twins/press-4/desired', { desired: { mode: 'off' } });
  await editor.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('button', { name: 'Take theirs' }).click();
  await expect(editor.getByLabel('Desired state')).toHaveValue('{\n  "mode": "off"\n}');
  await expect(editor.getByRole('button', { name: 'Save' })).toBeDisabled();
  await editor.getByRole('button', { name: 'Cancel' }).click();
  expect(await api('GET', '/twins/press-4')).toMatchObject({ desired: { mode: 'off' } });
});

test('an update is requested; what the server refuses stands at its field', async ({ page }) => {
  await open(page, '/devices/press-1#ota');
  await choose(page, 'Actions for press-1', 'Request an update');
  const form = await dialog(page, 'ota');
  await form.getByLabel('Version', { exact: true }).fill('3.1');
  await form.getByLabel('SHA-256 of the artifact').fill('abc');
  await form.getByLabel('Address of the artifact').fill('ftp://example.com/fw.bin');
  await form.getByRole('button', { name: 'Request the update' }).click();
  await expect(form.getByText('Must be 64 hexadecimal digits.')).toBeVisible();
  await form.getByLabel('SHA-256 of the artifact').fill(sha256);
  await form.getByRole('button', { name: 'Request the update' }).click();
  const address = form.getByLabel('Address of the artifact');
  await expect(address).toHaveAttribute('aria-invalid', 'true');
  await expect(address).toBeFocused();
  await dialog(page, 'ota-refused');
  await address.fill('https://example.com/fw.bin');
  await form.getByRole('button', { name: 'Request the update' }).click();
  await expect(page.getByRole('heading', { name: 'Update to 3.1' })).toBeVisible();
});

test('a device is forgotten', async ({ page }) => {
  await open(page, '/devices');
  await choose(page, 'Actions for press-6', 'Delete');
  await (await dialog(page, 'device-forget')).getByRole('button', { name: 'Delete the device' }).click();
  await expect(page.getByText('press-6 is deleted.')).toBeVisible();
  await expect(page.getByRole('table', { name: 'Devices' }).getByText('press-6')).toHaveCount(0);
});
