/** Templates in the hypervisor's console: one is made of the demo guest, and VMs start from it. */
import { dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { open, startHypervisor, tenantToken, whyNot, type Hypervisor } from './hypervisor';

const narrow = 360;
const booting = 90_000;

const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : whyNot();
test.skip(reason !== undefined, reason);
// Each test goes on with what the one before has made.
test.describe.configure({ timeout: 180_000, mode: 'serial' });

let hv: Hypervisor;

test.beforeAll(async () => {
  test.setTimeout(240_000);
  hv = await startHypervisor();
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (hv as Hypervisor | undefined)?.stop();
});

test('a template is made, whose errors stand at their fields', async ({ page }) => {
  await open(page, `${hv.url}/templates`);
  await expect(page.getByText('There are no templates')).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'hypervisor-templates-none', true);
  await page.getByRole('button', { name: 'Create a template' }).first().click();
  const form = await dialog(page, 'hypervisor-template', 'Create a template');
  await form.getByLabel('Image').fill('nothing');
  await form.getByRole('button', { name: 'Create the template' }).click();
  await expect(form.getByLabel('Image')).toHaveAccessibleDescription(/There is no image "nothing" in the catalog/);
  await form.getByLabel('Image').fill('demo');
  await form.getByLabel('Memory in MiB').fill('256');
  await form.getByRole('button', { name: 'Create the template' }).click();
  const busy = page.getByRole('table', { name: 'Templates under way' });
  await expect(busy.getByRole('row', { name: /Template of demo/ })).toBeVisible();
  await shot(page, 'hypervisor-templates-under-way', true);
  const row = page.getByRole('table', { name: 'Templates', exact: true }).getByRole('row', { name: /demo-1x256/ });
  await expect(row).toBeVisible({ timeout: booting });
  for (const text of ['demo', 'usable', '256 MiB', 'yes']) await expect(row).toContainText(text);
  await expect(busy).toHaveCount(0);
  await expect(page.getByText(/They take [\d.]+ MiB of the host’s disk\./)).toBeVisible();

  await page.getByRole('button', { name: 'Create a template' }).click();
  await form.getByLabel('Image').fill('demo');
  await form.getByLabel('Name').fill('demo-1x256');
  await form.getByRole('button', { name: 'Create the template' }).click();
  await expect(form.getByLabel('Name')).toHaveAccessibleDescription(/There is a template named demo-1x256 already/);
});

test('a VM starts from the template, and another one says why it booted', async ({ page }) => {
  await open(page, `${hv.url}/vms`);
  for (const [name, memory, began] of [['quick', '256', 'the template demo-1x256'], ['slow', '200', 'a boot: the template demo-1x256 does not fit: it has 256 MiB of memory, and the VM 200 MiB']] as const) {
    await page.getByRole('link', { name: 'VMs', exact: true }).first().click();
    await page.getByRole('button', { name: 'Create a VM' }).first().click();
    const form = await dialog(page, `hypervisor-create-${name}`, 'Create a VM');
    await form.getByLabel('Name', { exact: true }).fill(name);
    await form.getByLabel('Image').fill('demo');
    await form.getByLabel('Memory in MiB').fill(memory);
    await form.getByText('More settings').click();
    await expect(form.getByLabel('Start from a template that fits')).toBeChecked();
    await expect(form.getByLabel('Template', { exact: false }).last()).toBeVisible();
    await form.getByRole('button', { name: 'Create the VM' }).click();
    await expect(page.locator('.page-title .badge')).toHaveText('running', { timeout: booting });
    await expect(page.getByRole('definition').filter({ hasText: began })).toBeVisible();
    await expectAccessible(page);
    await shot(page, `hypervisor-began-${name}`, true);
  }
  await page.getByRole('link', { name: 'VMs', exact: true }).first().click();
  await page.getByRole('link', { name: 'quick', exact: true }).click();
  await page.getByRole('link', { name: 'demo-1x256' }).click();
  await expect(page).toHaveURL(`${hv.url}/templates?filter=demo-1x256`);
  await expect(page.getByRole('table', { name: 'Templates', exact: true }).getByRole('row', { name: /demo-1x256/ })).toBeVisible();
});

test('a tenant sees templates, and neither makes nor deletes any', async ({ page }) => {
  await open(page, `${hv.url}/templates`, tenantToken);
  await expect(page.getByRole('table', { name: 'Templates', exact: true })).toContainText('demo-1x256');
  await expect(page.getByRole('button', { name: 'Create a template' })).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Actions for demo-1x256' })).toHaveCount(0);
  await expect(page.getByRole('checkbox', { name: 'Select demo-1x256' })).toHaveCount(0);
  await expectAccessible(page);
});

test('the page templates is whole in both themes and widths', async ({ page }) => {
  await open(page, `${hv.url}/templates`);
  for (const width of [1280, narrow]) {
    await page.setViewportSize({ width, height: 860 });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await expect(page.getByRole('main').getByText('demo-1x256')).toBeVisible();
      await expectNoSidewaysScroll(page);
      await expectAccessible(page);
      await shot(page, `hypervisor-templates-${colorScheme}-${width}`, true);
    }
  }
});

test('the keyboard alone opens the templates and deletes one', async ({ page }) => {
  await open(page, hv.url);
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await expect(page.getByRole('heading', { name: 'Templates', level: 1 })).toBeFocused();
  const menu = page.getByRole('button', { name: 'Actions for demo-1x256' });
  await expect(menu).toBeVisible();
  for (let i = 0; i < 40 && !(await menu.evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog', { name: 'Delete the template demo-1x256?' })).toBeVisible();
  await dialog(page, 'hypervisor-template-delete');
  await page.getByRole('button', { name: 'Delete the template' }).focus();
  await page.keyboard.press('Enter');
  await expect(page.getByText('demo-1x256 is deleted.')).toBeVisible();
  await expect(page.getByText('There are no templates')).toBeVisible();
});
