/** A campaign from its draft to its end. */
import { api, dialog, expect, open, test, world } from './console';
import { enroll, sha256 } from './fixtures';

test('a campaign is drafted, started, promoted and finished, with the number of devices in every question', async ({ page }) => {
  const { id, agent } = await enroll(api, world.full.credentials.enrollment_token, 'campaign-site');
  for (let n = 0; n < 4; n++) await api('POST', '/devices/register', { device_id: `camp-${n}`, labels: { fleet: 'camp' } }, agent);
  await open(page, '/campaigns');
  await page.getByRole('button', { name: 'Create a campaign' }).click();
  const form = await dialog(page, 'campaign-draft');
  await form.getByLabel('Name', { exact: true }).fill('Four cameras');
  await form.getByLabel('Version', { exact: true }).fill('5.0');
  await form.getByLabel('Address of the artifact').fill('https://example.com/5.bin');
  await form.getByLabel('SHA-256 of the artifact').fill(sha256);
  await form.getByLabel('Stages in percent').fill('25, many');
  await form.getByRole('button', { name: 'Save the draft' }).click();
  await expect(form.getByText('“many” is not a number.')).toBeVisible();
  await form.getByLabel('Stages in percent').fill('25, 100');
  await form.getByText('More settings').click();
  await form.getByLabel('Success threshold').fill('2');
  await form.getByRole('button', { name: 'Save the draft' }).click();
  await expect(form.getByText('Must be at most 1.')).toBeVisible();
  await form.getByLabel('Success threshold').fill('0.9');
  await form.getByRole('button', { name: 'Save the draft' }).click();
  // The server wants at least one of the three kinds of targets.
  await expect(form.getByText('Must name site_ids, labels or device_ids.')).toBeVisible();
  await dialog(page, 'campaign-draft-refused');
  await form.getByLabel('Devices with all these labels').fill('fleet=camp');
  await expect(form.getByText('4 devices match now.')).toBeVisible();
  // Sites are chosen by their names.
  const sites = form.getByRole('group', { name: 'Only of these sites' });
  await sites.getByRole('searchbox').fill('plant-1');
  await sites.getByLabel('plant-1', { exact: true }).check();
  await expect(form.getByText('0 devices match now.')).toBeVisible();
  await sites.getByRole('searchbox').fill('campaign');
  await sites.getByLabel('campaign-site').check();
  await sites.getByLabel('plant-1', { exact: true }).click();
  await expect(form.getByText('4 devices match now.')).toBeVisible();
  await dialog(page, 'campaign-targets');
  await form.getByRole('button', { name: 'Save the draft' }).click();
  await expect(page.getByRole('heading', { name: 'Four cameras', level: 1 })).toBeVisible();

  await page.getByRole('button', { name: 'Start' }).click();
  const start = await dialog(page, 'campaign-start');
  await expect(start).toContainText('4 devices match now. 1 device in the first stage (25 %) will be asked at once');
  await start.getByRole('button', { name: 'Start the campaign' }).click();
  await expect(page.getByRole('list', { name: 'Stages' })).toContainText('running');

  await page.getByRole('button', { name: 'Promote' }).click();
  const promote = await dialog(page, 'campaign-promote');
  await expect(promote).toContainText('3 more devices will be asked to update to 5.0');
  await promote.getByRole('button', { name: 'Ask 3 devices' }).click();
  // In the last stage nothing is left to promote.
  await expect(page.getByRole('button', { name: 'Promote' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Pause' }).click();
  await expect(page.getByText(/It waits for a decision: paused by .*\. Resume or abort it\./)).toBeVisible();
  await page.getByRole('button', { name: 'Resume' }).click();
  await expect(page.getByText('Four cameras continues.')).toBeVisible();
  const report = async (n: number, state: string) => {
    await expect.poll(async () => (await api<{ desired: { ota?: unknown } }>('GET', `/twins/camp-${n}`)).desired.ota).toBeTruthy();
    await api('POST', `/agent/devices/camp-${n}/ota/status`, { site_id: id, status: { state } }, agent);
  };
  for (let n = 0; n < 4; n++) await report(n, n === 2 ? 'failed' : 'succeeded');
  await expect(page.getByText('It waits for a decision: 1 of 4 devices failed')).toBeVisible();
  await page.getByRole('button', { name: 'Retry failed' }).click();
  const again = await dialog(page, 'campaign-retry');
  await expect(again).toContainText('The campaign continues.');
  await again.getByRole('button', { name: 'Ask 1 device again' }).click();
  await expect(page.getByText('It waits for a decision')).toHaveCount(0);
  await report(2, 'succeeded');
  await expect(page.getByText('completed')).toBeVisible();
});

test('a draft is aborted', async ({ page }) => {
  const made = await api<{ id: string }>('POST', '/ota/campaigns', { name: 'Never mind', version: '1', url: 'https://example.com/1.bin', sha256, targets: { labels: { nobody: 'has' } } });
  await open(page, `/campaigns/${made.id}`);
  await page.getByRole('button', { name: 'Start' }).click();
  await expect(page.getByText('No device matches the targets now.')).toBeVisible();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Abort' }).click();
  await (await dialog(page, 'campaign-abort')).getByRole('button', { name: 'Abort the campaign' }).click();
  await expect(page.getByText('Never mind is aborted.')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Start' })).toHaveCount(0);
});

test('the devices of a campaign are narrowed to an outcome', async ({ page }) => {
  await open(page, `/campaigns/${world.fixtures.campaign.paused}`);
  const table = page.getByRole('table', { name: 'Devices of the campaign' });
  await page.getByRole('combobox', { name: 'Outcome' }).selectOption('failed');
  await expect(table.getByRole('row')).toHaveCount(3);
  await expect(table).toContainText('checksum of the artifact differs');
  await expect(page).toHaveURL(/\?outcome=failed$/);
  await table.getByRole('checkbox').first().check();
  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  const again = await dialog(page, 'campaign-again', /Retry 2 devices/);
  await expect(again).toContainText('They are asked once more');
  await again.getByRole('button', { name: 'Cancel' }).click();
});
