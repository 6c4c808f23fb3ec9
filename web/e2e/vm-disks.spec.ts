/** Disks and the CD drive in VM management's console, with real VMs: what an admin, a user and a viewer do. */
import type { Page } from '@playwright/test';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { addAndRemoveByKeyboard } from './disks';
import { open, startManagement, whyNot, type Management } from './vm';

const narrow = 360;
const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : whyNot();
test.skip(reason !== undefined, reason);
test.describe.configure({ timeout: 180_000 });

let m: Management;

const person = (username: string) => ({ username, password: `password of ${username}` });
const table = (page: Page, vm: string) => page.getByRole('table', { name: `Disks of ${vm}` });
const rowOf = (page: Page, vm: string, disk: string) => table(page, vm).getByRole('row', { name: new RegExp(`^${disk} `) });
const drive = (page: Page) => page.locator('section.card', { has: page.getByRole('heading', { name: 'CD drive' }) });

/** What a drive takes for an installation medium. */
function iso(): Uint8Array {
  const content = new Uint8Array(1 << 20);
  content.set(new TextEncoder().encode('CD001'), 0x8001);
  return content;
}

test.beforeAll(async () => {
  test.setTimeout(300_000);
  m = await startManagement();
  await m.call('PUT', '/api/tenants/acme', { quota: { disk: 6 } });
  for (const [username, role] of [['ulla', 'user'], ['vera', 'viewer'], ['otto', 'admin']] as const) await m.call('POST', '/api/users', { ...person(username), role, tenant: 'acme' });
  writeFileSync(join(m.folder, 'blank.raw'), new Uint8Array(1 << 20));
  writeFileSync(join(m.folder, 'tools.iso'), iso());
  await m.image('import', { name: 'blank', path: join(m.folder, 'blank.raw'), format: 'raw' });
  await m.image('import', { name: 'tools', path: join(m.folder, 'tools.iso'), format: 'iso' });
  // It boots nothing, so that nobody lets go of a disk.
  await m.made('bare', { image: 'blank', network: { mode: 'none' } }, true);
  // It boots a kernel, and gets disks at its next start.
  await m.made('micro', { network: { mode: 'none' } }, true);
  await m.made('still', { image: 'blank', network: { mode: 'none' } });
  await m.made('shop', { image: 'blank', tenant: 'acme', network: { mode: 'none' } });
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (m as Management | undefined)?.stop();
});

test('an admin adds a disk, changes it and the system disk, and removes it', async ({ page }) => {
  await open(page, m, '/vms/still#disks');
  await expect(rowOf(page, 'still', 'system')).toContainText('1 GiB');
  await page.getByRole('button', { name: 'Add a disk' }).click();
  const form = await dialog(page, 'vm-disk-add', 'Add a disk to still');
  const add = form.getByRole('button', { name: 'Add the disk' });
  await form.getByLabel('Name').fill('not a name');
  await add.click();
  await expect(form.getByLabel('Name')).toHaveAccessibleDescription(/May have letters and digits/);
  await expect(form.getByLabel('Size in GiB')).toHaveAttribute('aria-invalid', 'true');
  // What only the service knows stands at the field too.
  await form.getByLabel('Name').fill('system');
  await form.getByLabel('Size in GiB').fill('1');
  await add.click();
  await expect(form.getByLabel('Name')).toHaveAccessibleDescription(/[Ss]ystem is the name of the system disk/);
  await form.getByLabel('Name').fill('data');
  await form.getByLabel('Copy of the image').fill('nothing');
  await add.click();
  await expect(form.getByLabel('Copy of the image')).toHaveAccessibleDescription(/nothing/);
  expect(await form.locator('datalist option').evaluateAll((all) => all.map((o) => (o as HTMLOptionElement).value))).toEqual(['blank']);
  await form.getByLabel('Copy of the image').fill('blank');
  await form.getByLabel('Most operations a second').fill('500');
  await expect(form.getByText('The guest may do 500 operations/s.')).toBeVisible();
  await add.click();
  await expect(page.getByText('data is added. still has it when it runs.')).toBeVisible();
  const row = rowOf(page, 'still', 'data');
  for (const text of ['when the VM runs', '1 GiB', '500 operations/s', '/dev/disk/by-id/virtio-data', 'blank']) await expect(row).toContainText(text);

  await page.getByRole('button', { name: 'Add a disk' }).click();
  const again = await dialog(page, 'vm-disk-add-again', 'Add a disk to still');
  await again.getByLabel('Name').fill('data');
  await again.getByLabel('Size in GiB').fill('1');
  await again.getByRole('button', { name: 'Add the disk' }).click();
  await expect(again.getByLabel('Name')).toHaveAccessibleDescription(/The VM has a disk data already/);
  await expect(again.getByLabel('Name')).toBeFocused();
  await again.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Discard' }).click();

  await choose(page, 'Actions for data', 'Change…');
  const change = await dialog(page, 'vm-disk-change', 'Change the disk data of still');
  await change.getByLabel('Size in GiB').fill('2');
  await change.getByLabel('Most operations a second').fill('');
  await change.getByLabel('Most bytes a second').fill('10485760');
  await change.getByRole('button', { name: 'Change the disk' }).click();
  await expect(page.getByText('data has 2 GiB, and 10 MiB/s.')).toBeVisible();
  await expect(row).toContainText('2 GiB');
  await expect(row).not.toContainText('operations');

  await choose(page, 'Actions for system', 'Change…');
  const system = await dialog(page, 'vm-disk-system', 'Change the disk system of still');
  await system.getByLabel('Size in GiB').fill('3');
  await system.getByRole('button', { name: 'Change the disk' }).click();
  await expect(page.getByText('system has 3 GiB, and no limits.')).toBeVisible();
  await expect(page.getByText(/3 GiB of disk/)).toBeVisible();
  await choose(page, 'Actions for system', 'Change…');
  await system.getByLabel('Size in GiB').fill('2');
  await system.getByRole('button', { name: 'Change the disk' }).click();
  await expect(system.getByLabel('Size in GiB')).toHaveAccessibleDescription(/The disk has 3 GiB already, and can only grow/);
  await system.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Discard' }).click();
  await page.getByRole('button', { name: 'Actions for system' }).click();
  await expect(page.getByRole('menuitem', { name: 'Change…' })).toBeVisible();
  await expect(page.getByRole('menuitem', { name: 'Remove…' })).toHaveCount(0);
  await page.keyboard.press('Escape');
  await expectAccessible(page);
  await shot(page, 'vm-disks', true);
  await page.getByRole('tab', { name: 'Overview' }).click();
  await expect(page.getByRole('definition').filter({ hasText: /^data \(2 GiB\)$/ })).toBeVisible();
  await page.getByRole('tab', { name: 'Disks' }).click();

  // One that is protected keeps its disks.
  await m.call('PATCH', '/api/vms/still', { protected: true });
  await expect(page.getByText('The VM is protected. Allow deleting it before you remove a disk.')).toBeVisible();
  await page.getByRole('button', { name: 'Actions for data' }).click();
  await expect(page.getByRole('menuitem', { name: 'Change…' })).toBeVisible();
  await expect(page.getByRole('menuitem', { name: 'Remove…' })).toHaveCount(0);
  await page.keyboard.press('Escape');
  await m.call('PATCH', '/api/vms/still', { protected: false });
  await expect(page.getByText('The VM is protected.')).toHaveCount(0);

  await choose(page, 'Actions for data', 'Remove…');
  const sure = await dialog(page, 'vm-disk-remove', 'Remove the disk data of still?');
  await expect(sure.getByText('is removed with all that is on its 2 GiB. No backup of still has it.')).toBeVisible();
  await expect(sure.getByRole('button', { name: 'Remove the disk' })).toBeDisabled();
  await sure.getByLabel('Type data to continue').fill('data');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(page.getByText('data is removed.')).toBeVisible();
  await expect(row).toHaveCount(0);
});

test('a disk that the guest does not let go of stays, and the question stays open with the reason', async ({ page }) => {
  await m.call('POST', '/api/vms/bare/disks', { name: 'kept', size: 1 });
  await open(page, m, '/vms/bare#disks');
  await expect(rowOf(page, 'bare', 'kept')).toContainText('now');
  await choose(page, 'Actions for kept', 'Remove…');
  const sure = await dialog(page, 'vm-disk-kept', 'Remove the disk kept of bare?');
  await sure.getByLabel('Type kept to continue').fill('kept');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(sure.getByRole('alert')).toContainText('the guest does not let go of the disk kept', { timeout: 60_000 });
  await expect(sure.getByLabel('Type kept to continue')).toHaveValue('kept');
  await shot(page, 'vm-disk-kept-error');
  await sure.getByRole('button', { name: 'Cancel' }).click();
  await expect(rowOf(page, 'bare', 'kept')).toBeVisible();
});

test('a VM that boots a kernel gets its disk and its CD at the next start, and gives the disk up when it stops', async ({ page }) => {
  await open(page, m, '/vms/micro#disks');
  const row = rowOf(page, 'micro', 'late');
  await page.getByRole('button', { name: 'Add a disk' }).click();
  const form = await dialog(page, 'vm-disk-late', 'Add a disk to micro');
  await form.getByLabel('Name').fill('late');
  await form.getByLabel('Size in GiB').fill('1');
  await form.getByLabel('Read-only').check();
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(page.getByText('late is added. The next start of micro attaches it.')).toBeVisible();
  await expect(row).toContainText('from the next start');
  await expect(row).toContainText('1 GiB, read-only');
  await drive(page).getByRole('button', { name: 'Insert a CD' }).click();
  const insert = await dialog(page, 'vm-cd-late', 'Insert a CD into micro');
  await insert.getByLabel('Image').fill('tools');
  await insert.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(page.getByText('The guest of micro has it from the next start on.')).toBeVisible();
  await expect(drive(page).getByText('from the next start on', { exact: true })).toBeVisible();
  await expect(page.getByText('A change of disks and CD waits for the next start.')).toBeVisible();
  await shot(page, 'vm-disks-pending', true);

  await m.call('POST', '/api/vms/micro/restart', {});
  await expect(row.getByText('now', { exact: true })).toBeVisible({ timeout: 60_000 });
  await expect(page.getByText('from the next start on', { exact: true })).toHaveCount(0);
  await choose(page, 'Actions for late', 'Remove…');
  const sure = await dialog(page, 'vm-disk-doomed', 'Remove the disk late of micro?');
  await sure.getByLabel('Type late to continue').fill('late');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(page.getByText('late is removed when micro stops.')).toBeVisible();
  await expect(row).toContainText('until the VM stops');
  await expect(row.getByRole('button', { name: 'Actions for late' })).toHaveCount(0);
  await m.call('POST', '/api/vms/micro/stop', { force: true });
  await expect(row).toHaveCount(0);
});

test('a user adds and changes disks within the quota, and neither limits nor removes them', async ({ page }) => {
  await m.call('POST', '/api/vms/shop/disks?tenant=acme', { name: 'limited', size: 1, iops: 700 });
  await open(page, m, '/vms/shop#disks', person('ulla'));
  await expect(rowOf(page, 'shop', 'limited')).toContainText('700 operations/s');
  await page.getByRole('button', { name: 'Add a disk' }).click();
  const form = await dialog(page, 'vm-disk-add-user', 'Add a disk to shop');
  await expect(form.getByLabel('Most operations a second')).toHaveCount(0);
  await expect(form.getByText('The guest may do as much as the host can.')).toHaveCount(0);
  await form.getByLabel('Name').fill('much');
  await form.getByLabel('Size in GiB').fill('100');
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(form.getByLabel('Size in GiB')).toHaveAccessibleDescription(/Quota disk of tenant acme: 100 GiB of disk requested, 4 of 6 left/);
  await expect(form.getByLabel('Size in GiB')).toBeFocused();
  await expectAccessible(page);
  await shot(page, 'vm-disk-quota');
  await form.getByLabel('Size in GiB').fill('1');
  await form.getByRole('button', { name: 'Add the disk' }).click();
  await expect(page.getByText('much is added. shop has it when it runs.')).toBeVisible();

  await choose(page, 'Actions for limited', 'Change…');
  const change = await dialog(page, 'vm-disk-change-user', 'Change the disk limited of shop');
  await expect(change.getByLabel('Most operations a second')).toHaveCount(0);
  await change.getByLabel('Size in GiB').fill('50');
  await change.getByRole('button', { name: 'Change the disk' }).click();
  await expect(change.getByLabel('Size in GiB')).toHaveAccessibleDescription(/Quota disk of tenant acme: 49 GiB/);
  await change.getByLabel('Size in GiB').fill('2');
  await change.getByRole('button', { name: 'Change the disk' }).click();
  await expect(page.getByText('limited has 2 GiB, and 700 operations/s.')).toBeVisible();
  await page.getByRole('button', { name: 'Actions for limited' }).click();
  await expect(page.getByRole('menuitem', { name: 'Change…' })).toBeVisible();
  await expect(page.getByRole('menuitem', { name: 'Remove…' })).toHaveCount(0);
  await page.keyboard.press('Escape');
  await drive(page).getByRole('button', { name: 'Insert a CD' }).click();
  const insert = await dialog(page, 'vm-cd-user', 'Insert a CD into shop');
  await insert.getByLabel('Image').fill('tools');
  await insert.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(page.getByText('tools is in the drive of shop.')).toBeVisible();
});

test('an admin of a tenant removes disks, and does not limit them', async ({ page }) => {
  await m.call('POST', '/api/vms/shop/disks?tenant=acme', { name: 'gone', size: 1 });
  await open(page, m, '/vms/shop#disks', person('otto'));
  await choose(page, 'Actions for gone', 'Change…');
  const change = await dialog(page, 'vm-disk-change-tenant', 'Change the disk gone of shop');
  await expect(change.getByLabel('Size in GiB')).toBeVisible();
  await expect(change.getByLabel('Most bytes a second')).toHaveCount(0);
  await change.getByRole('button', { name: 'Cancel' }).click();
  await choose(page, 'Actions for gone', 'Remove…');
  const sure = await dialog(page, 'vm-disk-remove-tenant', 'Remove the disk gone of shop?');
  await sure.getByLabel('Type gone to continue').fill('gone');
  await sure.getByRole('button', { name: 'Remove the disk' }).click();
  await expect(page.getByText('gone is removed.')).toBeVisible();
});

test('a viewer sees the disks and the CD, and changes nothing', async ({ page }) => {
  await m.call('PUT', '/api/vms/shop/cd?tenant=acme', { image: 'tools' });
  await open(page, m, '/vms/shop#disks', person('vera'));
  await expect(rowOf(page, 'shop', 'system')).toContainText('1 GiB');
  await expect(drive(page).getByRole('definition')).toHaveText('tools');
  for (const name of ['Add a disk', 'Insert another CD', 'Eject…']) await expect(page.getByRole('button', { name })).toHaveCount(0);
  await expect(page.getByRole('button', { name: /^Actions for/ })).toHaveCount(0);
  await expectAccessible(page);
});

test('a CD is inserted, changed and ejected', async ({ page }) => {
  await open(page, m, '/vms/bare#disks');
  await expect(drive(page)).toContainText('nothing');
  await drive(page).getByRole('button', { name: 'Insert a CD' }).click();
  const form = await dialog(page, 'vm-cd', 'Insert a CD into bare');
  const image = form.getByLabel('Image');
  // Installation media come first.
  await expect(image).toHaveAttribute('placeholder', 'tools');
  expect(await form.locator('datalist option').evaluateAll((all) => all.map((o) => (o as HTMLOptionElement).value))).toEqual(['tools', 'blank']);
  await image.fill('tools');
  await form.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(page.getByText('tools is in the drive of bare.')).toBeVisible();
  await expect(drive(page).getByRole('definition')).toHaveText('tools');
  await drive(page).getByRole('button', { name: 'Insert another CD' }).click();
  await expect(form.getByText('It takes the place of tools.')).toBeVisible();
  await image.fill('blank');
  await form.getByRole('button', { name: 'Insert the CD' }).click();
  await expect(drive(page).getByRole('definition')).toHaveText('blank');
  await drive(page).getByRole('button', { name: 'Eject…' }).click();
  await (await dialog(page, 'vm-cd-eject', 'Eject blank?')).getByRole('button', { name: 'Eject the CD' }).click();
  await expect(page.getByText('blank is ejected.')).toBeVisible();
  await expect(drive(page).getByRole('definition')).toHaveText('nothing');
});

test('a backup says which disks it left out, before it is made, in the list and where it is restored', async ({ page }) => {
  await m.made('keeper', { image: 'blank', network: { mode: 'none' } });
  await m.call('POST', '/api/vms/keeper/disks', { name: 'logs', size: 1 });
  await open(page, m, '/vms/keeper#backups');
  await page.getByRole('button', { name: 'Create a backup' }).click();
  const make = await dialog(page, 'vm-backup-left-out', 'Back up keeper');
  await expect(make.getByText('The backup has the system disk only, and not logs.')).toBeVisible();
  await make.getByRole('button', { name: 'Create the backup' }).click();
  const row = page.getByRole('row').filter({ hasText: 'completed' });
  await expect(row).toContainText('Without logs', { timeout: 60_000 });
  await shot(page, 'vm-backups-left-out', true);
  await row.getByRole('button', { name: /^Actions for/ }).click();
  await page.getByRole('menuitem', { name: 'Details' }).click();
  const look = await dialog(page, 'vm-backup-look', 'Backup of keeper');
  await expect(look.getByText('The backup has the system disk of keeper only, and not the disk logs.')).toBeVisible();
  await page.keyboard.press('Escape');
  await row.getByRole('button', { name: /^Actions for/ }).click();
  await page.getByRole('menuitem', { name: 'Restore…' }).click();
  const restore = await dialog(page, 'vm-restore-left-out', 'Restore the backup of keeper');
  await expect(restore.getByText(/and not the disk logs\./)).toBeVisible();
  await restore.getByLabel('As', { exact: true }).selectOption('place');
  await expect(restore.getByText(/Its other disks stay as they are/)).toBeVisible();
});

test('what is not known while the host does not answer is not said', async ({ page }) => {
  await m.call('POST', '/api/vms/micro/disks', { name: 'silent', size: 1, iops: 300 });
  // A host that fails is not at hand: the answers of the service then are.
  await page.route(/\/api\/vms\/micro(\?|$)/, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...((await response.json()) as object), state: 'running', unreachable: true } });
  });
  await page.route(/\/api\/vms\/micro\/disks\?/, (route) => route.fulfill({ status: 503, json: { error: 'the hypervisor daemon does not answer' } }));
  await open(page, m, '/vms/micro#disks');
  const row = rowOf(page, 'micro', 'silent');
  await expect(row).toContainText('not known');
  await expect(row).toContainText('300 operations/s');
  await expect(rowOf(page, 'micro', 'system').getByText('not known')).toHaveCount(2);
  await expect(page.getByText('The hypervisor does not tell of the VM')).toBeVisible();
  await expect(drive(page)).toContainText('Held when the VM was last seen');
  await expect(page.getByRole('button', { name: 'Add a disk' })).toHaveCount(0);
  await expect(page.getByRole('button', { name: /^Actions for (system|silent)$/ })).toHaveCount(0);
  await expectAccessible(page);
  await shot(page, 'vm-disks-unreachable', true);
});

test('the keyboard alone adds a disk and removes it', async ({ page }) => {
  await open(page, m, '/vms/still#disks');
  await addAndRemoveByKeyboard(page, 'still');
});

test('the page is whole in both themes and widths, and so are its dialogs on a small screen', async ({ page }) => {
  await m.call('POST', '/api/vms/bare/disks', { name: 'wide', size: 1, iops: 500, bytes_per_second: 10_485_760 });
  await open(page, m, '/vms/bare#disks');
  for (const width of [1280, narrow]) {
    await page.setViewportSize({ width, height: 780 });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await expect(rowOf(page, 'bare', 'wide')).toBeVisible();
      await expectNoSidewaysScroll(page);
      await expectAccessible(page);
      await shot(page, `vm-disks-${colorScheme}-${width}`, true);
    }
  }
  await page.getByRole('button', { name: 'Add a disk' }).click();
  await dialog(page, 'vm-disk-add-narrow', 'Add a disk to bare');
  await expectNoSidewaysScroll(page);
  await page.keyboard.press('Escape');
  await drive(page).getByRole('button', { name: 'Insert a CD' }).click();
  await dialog(page, 'vm-cd-narrow', 'Insert a CD into bare');
  await expectNoSidewaysScroll(page);
});
