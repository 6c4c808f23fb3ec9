/** Disks, the CD drive, the serial log and network limits in the hypervisor's console, with real guests. */
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { addAndRemoveByKeyboard } from './disks';
import { open, startHypervisor, tenantToken, whyNot, type Hypervisor } from './hypervisor';

const narrow = 360;
const booting = 60_000;
const bios = '/usr/share/seabios/bios-256k.bin';

const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : (whyNot() ?? (existsSync(bios) ? undefined : 'seabios is not installed'));
test.skip(reason !== undefined, reason);
test.describe.configure({ timeout: 180_000 });

interface VM {
  id: string;
  name: string;
}

let hv: Hypervisor;
/** A PC whose guest knows disks that come and go. */
let linux: VM;
/** A PC that boots nothing, so that nobody lets go of a disk. */
let bare: VM;
/** A VM that boots a kernel, and has no ports. */
let micro: VM;

test.beforeAll(async () => {
  test.setTimeout(240_000);
  hv = await startHypervisor();
  // Taken for firmware with variables, a BIOS makes the demo guest's board a PC.
  const firmware = join(hv.folder, 'firmware');
  mkdirSync(firmware);
  copyFileSync(bios, join(firmware, 'BIOS_CODE.fd'));
  writeFileSync(join(firmware, 'BIOS_VARS.fd'), new Uint8Array(64 << 10));
  writeFileSync(join(hv.folder, 'tools.iso'), new Uint8Array(1 << 20));
  for (const [name, file] of [['blank', 'blank.qcow2'], ['aa-disk', 'blank.qcow2'], ['tools', 'tools.iso']] as const) {
    const added = await hv.call<{ id: string }>('POST', '/v1/images/catalog', { name, path: join(hv.folder, file) });
    await hv.call('GET', `/v1/operations/${added.id}?wait=60`);
  }
  const small = { memory_mib: 192, network: { mode: 'none' } };
  linux = await hv.call('POST', '/v1/vms', { name: 'linux', image: 'demo', firmware: join(firmware, 'BIOS_CODE.fd'), kernel_args: 'console=ttyS0 quiet', agent: { enabled: false }, start: true, tenant: 'shop', ...small });
  bare = await hv.call('POST', '/v1/vms', { name: 'bare', image: 'blank', start: true, ...small });
  micro = await hv.call('POST', '/v1/vms', { name: 'micro', image: 'demo', disk_gib: 1, ...small });
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (hv as Hypervisor | undefined)?.stop();
});

test('the serial log shows what the guest printed, and is downloaded', async ({ page }) => {
  await open(page, `${hv.url}/vms/${linux.id}#log`);
  const log = page.getByRole('region', { name: 'Serial log of linux' });
  await expect(log).toContainText('mainstay demo guest: ready', { timeout: booting });
  const text = await log.innerText();
  expect(text).not.toMatch(/[^\P{Cc}\n\t]/u);
  // The end is in view.
  expect(await log.evaluate((e) => e.scrollHeight - e.scrollTop - e.clientHeight)).toBeLessThan(8);
  await expectAccessible(page);
  // Without a picker for files, the browser downloads.
  await page.evaluate(() => Reflect.deleteProperty(window, 'showSaveFilePicker'));
  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
  expect(saved.suggestedFilename()).toBe('linux.log');
  expect(readFileSync(await saved.path(), 'utf8')).toContain('mainstay demo guest: ready');
});

test('a disk is added to a guest that runs, limited, and removed', async ({ page }) => {
  await open(page, `${hv.url}/vms/${linux.id}#disks`, tenantToken);
  const disks = page.getByRole('table', { name: 'Disks of linux' });
  await page.getByRole('button', { name: 'Add a disk' }).click();
  const form = await dialog(page, 'hypervisor-disk-add', 'Add a disk to linux');
  await form.getByLabel('Name').fill('not a name');
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(form.getByLabel('Name')).toHaveAccessibleDescription(/May have letters and digits/);
  // What only the daemon knows stands at the field too.
  await form.getByLabel('Name').fill('data');
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(form.getByLabel('Size in GiB')).toHaveAccessibleDescription(/Is required without an image/);
  await form.getByLabel('Size in GiB').fill('1');
  await form.getByLabel('Most operations a second').fill('500');
  await expect(form.getByText('The guest may do 500 operations/s.')).toBeVisible();
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(page.getByText('data is added and attached.')).toBeVisible();
  const row = disks.getByRole('row', { name: /^data / });
  for (const text of ['now', '1 GiB', '500 operations/s', '/dev/disk/by-id/virtio-data']) await expect(row).toContainText(text);

  await page.getByRole('button', { name: 'Add a disk' }).click();
  const again = await dialog(page, 'hypervisor-disk-add-again', 'Add a disk to linux');
  await again.getByLabel('Name').fill('data');
  await again.getByLabel('Size in GiB').fill('1');
  await again.getByRole('button', { name: 'Add the disk' }).click();
  await expect(again.getByLabel('Name')).toHaveAccessibleDescription(/The VM has a disk data already/);
  await expect(again.getByLabel('Name')).toBeFocused();
  await again.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Discard' }).click();

  await choose(page, 'Actions for data', 'Change…');
  const change = await dialog(page, 'hypervisor-disk-change', 'Change the disk data of linux');
  await change.getByLabel('Size in GiB').fill('2');
  await change.getByLabel('Most operations a second').fill('');
  await change.getByLabel('Most bytes a second').fill('10485760');
  await change.getByRole('button', { name: 'Change the disk' }).click();
  await expect(page.getByText('data has 2 GiB, and 10 MiB/s.')).toBeVisible();
  await expect(row).toContainText('2 GiB');
  await expect(row).toContainText('10 MiB/s');
  await expect(row).not.toContainText('operations');
  await expectAccessible(page);
  await shot(page, 'hypervisor-disks', true);

  await choose(page, 'Actions for data', 'Remove…');
  const sure = await dialog(page, 'hypervisor-disk-remove', 'Remove the disk data of linux?');
  await expect(sure.getByRole('button', { name: 'Remove the disk' })).toBeDisabled();
  await sure.getByLabel('Type data to continue').fill('data');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(page.getByText('data is removed.')).toBeVisible({ timeout: 30_000 });
  await expect(row).toHaveCount(0);
});

test('a disk that the guest does not let go of stays, and says so', async ({ page }) => {
  await open(page, `${hv.url}/vms/${bare.id}#disks`);
  const disks = page.getByRole('table', { name: 'Disks of bare' });
  await expect(disks.getByRole('row', { name: /^system / })).toContainText('1 GiB');
  await hv.call('POST', `/v1/vms/${bare.id}/disks`, { name: 'kept', size_gib: 1 });
  await choose(page, 'Actions for kept', 'Remove…');
  const sure = await dialog(page, 'hypervisor-disk-kept', 'Remove the disk kept of bare?');
  await sure.getByLabel('Type kept to continue').fill('kept');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(sure.getByRole('alert')).toContainText('the guest does not let go of the disk kept', { timeout: 40_000 });
  await sure.getByRole('button', { name: 'Cancel' }).click();
  await expect(disks.getByRole('row', { name: /^kept / })).toContainText('the guest keeps it');
  await expect(page.getByText('The guest has not let go of kept.')).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'hypervisor-disk-kept', true);
  // Other parts of the page do not make it forget.
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByRole('tab', { name: 'Disks' }).click();
  await expect(disks.getByRole('row', { name: /^kept / })).toContainText('the guest keeps it');

  await hv.call('POST', `/v1/vms/${bare.id}/pause`);
  await expect(page.getByText('The VM is paused. Resume or stop it to remove a disk that is attached.')).toBeVisible();
  await page.getByRole('button', { name: 'Actions for kept' }).click();
  await expect(page.getByRole('menuitem', { name: 'Change…' })).toBeVisible();
  await expect(page.getByRole('menuitem', { name: 'Remove…' })).toHaveCount(0);
  await page.keyboard.press('Escape');
  await hv.call('POST', `/v1/vms/${bare.id}/stop`, { force: true });
  await expect(disks.getByRole('row', { name: /^kept / })).toContainText('when the VM runs');
  await choose(page, 'Actions for kept', 'Remove…');
  await sure.getByLabel('Type kept to continue').fill('kept');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(page.getByText('kept is removed.')).toBeVisible();
  await hv.call('POST', `/v1/vms/${bare.id}/start`);
});

test('a VM without ports gets its disk at the next start, and gives it up when it stops', async ({ page }) => {
  await hv.call('POST', `/v1/vms/${micro.id}/start`);
  await open(page, `${hv.url}/vms/${micro.id}#disks`);
  const row = page.getByRole('table', { name: 'Disks of micro' }).getByRole('row', { name: /^late / });
  await page.getByRole('button', { name: 'Add a disk' }).click();
  const form = await dialog(page, 'hypervisor-disk-late', 'Add a disk to micro');
  await form.getByLabel('Name').fill('late');
  await form.getByLabel('Copy of the image').fill('blank');
  await form.getByLabel('Read-only').check();
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(page.getByText('late is added. The next start of micro attaches it.')).toBeVisible();
  await expect(row).toContainText('from the next start');
  await expect(row).toContainText('1 GiB, read-only');
  await page.getByRole('tab', { name: 'Overview' }).click();
  await expect(page.getByRole('definition').filter({ hasText: /^changes disks$/ })).toBeVisible();
  await hv.call('POST', `/v1/vms/${micro.id}/restart`, { force: true });
  await page.getByRole('tab', { name: 'Disks' }).click();
  await expect(row.getByText('now', { exact: true })).toBeVisible();
  await choose(page, 'Actions for late', 'Remove…');
  const sure = await dialog(page, 'hypervisor-disk-doomed', 'Remove the disk late of micro?');
  await sure.getByLabel('Type late to continue').fill('late');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(page.getByText('late is removed when micro stops.')).toBeVisible();
  await expect(row).toContainText('until the VM stops');
  await expect(row.getByRole('button', { name: 'Actions for late' })).toHaveCount(0);
  await page.setViewportSize({ width: narrow, height: 780 });
  await expectNoSidewaysScroll(page);
  await shot(page, 'hypervisor-disks-narrow', true);
  await hv.call('POST', `/v1/vms/${micro.id}/stop`, { force: true });
  await expect(row).toHaveCount(0);
});

test('a CD is inserted, changed and ejected', async ({ page }) => {
  await open(page, `${hv.url}/vms/${bare.id}#disks`);
  const drive = page.locator('section.card', { has: page.getByRole('heading', { name: 'CD drive' }) });
  await expect(drive).toContainText('nothing');
  await drive.getByRole('button', { name: 'Insert a CD' }).click();
  const form = await dialog(page, 'hypervisor-cd', 'Insert a CD into bare');
  const image = form.getByLabel('Image');
  // The catalog does not know what a CD is: what looks like one comes first, and kernels are left out.
  await expect(image).toHaveAttribute('placeholder', 'tools');
  expect(await form.locator('datalist option').evaluateAll((all) => all.map((o) => (o as HTMLOptionElement).value))).toEqual(['tools', 'aa-disk', 'blank']);
  await image.fill('demo');
  await form.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(image).toHaveAccessibleDescription(/Demo is not a disk, but a kernel/);
  await image.fill('tools');
  await form.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(page.getByText('tools is in the drive of bare.')).toBeVisible();
  await expect(drive.getByRole('definition')).toHaveText('tools');
  await expectAccessible(page);
  await drive.getByRole('button', { name: 'Insert another CD' }).click();
  await expect(form.getByText('It takes the place of tools.')).toBeVisible();
  await image.fill('blank');
  await form.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(drive.getByRole('definition')).toHaveText('blank');
  await page.setViewportSize({ width: narrow, height: 780 });
  await expectNoSidewaysScroll(page);
  await shot(page, 'hypervisor-cd-narrow', true);
  await drive.getByRole('button', { name: 'Eject…' }).click();
  await (await dialog(page, 'hypervisor-cd-eject', 'Eject blank?')).getByRole('button', { name: 'Eject the CD' }).click();
  await expect(page.getByText('blank is ejected.')).toBeVisible();
  await expect(drive.getByRole('definition')).toHaveText('nothing');
});

test('a VM that boots a kernel sees the CD from its next start on', async ({ page }) => {
  await hv.call('POST', `/v1/vms/${micro.id}/start`);
  await open(page, `${hv.url}/vms/${micro.id}#disks`);
  await page.getByRole('button', { name: 'Insert a CD' }).click();
  const form = await dialog(page, 'hypervisor-cd-late', 'Insert a CD into micro');
  await form.getByLabel('Image').fill('tools');
  await form.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(page.getByText('The guest of micro has it from the next start on.')).toBeVisible();
  await expect(page.getByText('from the next start on', { exact: true })).toBeVisible();
  await hv.call('POST', `/v1/vms/${micro.id}/restart`, { force: true });
  await expect(page.getByText('from the next start on', { exact: true })).toHaveCount(0);
  await hv.call('POST', `/v1/vms/${micro.id}/stop`, { force: true });
});

test('the network of a VM with a device on the host is limited, and that of others is not offered', async ({ page }) => {
  const bridged = await hv.call<VM>('POST', '/v1/vms', { name: 'bridged', image: 'demo', memory_mib: 128, network: { mode: 'bridge' } });
  await open(page, `${hv.url}/vms/${bridged.id}`);
  await choose(page, 'Actions for bridged', 'Limit the network…');
  const form = await dialog(page, 'hypervisor-network-limits', 'Limit the network of bridged');
  const receives = form.getByLabel('Bits a second that the guest receives, at most');
  await receives.fill('-1');
  await form.getByRole('button', { name: 'Limit the network' }).click();
  await expect(receives).toHaveAccessibleDescription(/Must be at least 0/);
  await receives.fill('100000000');
  await expect(form.getByText('The guest receives at most 100 Mbit/s.')).toBeVisible();
  await form.getByRole('button', { name: 'Limit the network' }).click();
  await expect(page.getByRole('definition').filter({ hasText: /^receives at most 100 Mbit\/s$/ })).toBeVisible();
  await choose(page, 'Actions for bridged', 'Limit the network…');
  await receives.fill('');
  await form.getByRole('button', { name: 'Limit the network' }).click();
  await expect(page.getByText('bridged has no network limits.')).toBeVisible();

  await open(page, `${hv.url}/vms/${micro.id}`);
  await page.getByRole('button', { name: 'Actions for micro' }).click();
  await expect(page.getByRole('menuitem', { name: 'Clone…' })).toBeVisible();
  await expect(page.getByRole('menuitem', { name: 'Limit the network…' })).toHaveCount(0);
});

test('the keyboard alone adds a disk and removes it', async ({ page }) => {
  await hv.call('POST', `/v1/vms/${micro.id}/stop`, { force: true }).catch(() => undefined);
  await open(page, `${hv.url}/vms/${micro.id}#disks`);
  await addAndRemoveByKeyboard(page, 'micro');
});

for (const [name, path, expected] of [
  ['vm-disks', () => `/vms/${bare.id}#disks`, 'CD drive'],
  ['vm-log', () => `/vms/${linux.id}#log`, 'mainstay demo guest: ready'],
] as const) {
  test(`the page ${name} is whole in both themes and widths`, async ({ page }) => {
    await open(page, hv.url + path());
    for (const width of [1280, narrow]) {
      await page.setViewportSize({ width, height: 860 });
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await expect(page.getByRole('main').getByText(expected).filter({ visible: true }).first()).toBeVisible({ timeout: booting });
        await expect(page.locator('.skeleton')).toHaveCount(0);
        await expectNoSidewaysScroll(page);
        await expectAccessible(page);
        await shot(page, `hypervisor-${name}-${colorScheme}-${width}`, true);
      }
    }
  });
}
