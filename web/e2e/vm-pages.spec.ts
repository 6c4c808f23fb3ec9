/** Every page of VM management's console: in both themes and widths, and by the keyboard. */
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { open, startManagement, whyNot, type Management } from './vm';

const narrow = 360;
const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : whyNot();
test.skip(reason !== undefined, reason);
test.describe.configure({ timeout: 120_000 });

let m: Management;

test.beforeAll(async () => {
  test.setTimeout(240_000);
  m = await startManagement();
  await m.call('PUT', '/api/tenants/acme', { description: 'A shop', quota: { vms: 5, cpus: 8, memory: 4096 } });
  await m.call('POST', '/api/users', { username: 'ulla', role: 'user', tenant: 'acme', password: 'password of ulla' });
  await m.call('POST', '/api/users', { username: 'vera', role: 'viewer', tenant: 'acme', password: 'password of vera' });
  await m.made('web', { tenant: 'acme', network: { mode: 'bridge' }, tags: ['prod'], labels: { role: 'web' } });
  await m.made('spare');
  await m.made('open', { network: { mode: 'user', forwards: [{ host_port: 30080, guest_port: 80 }, { protocol: 'udp', host_address: '0.0.0.0', host_port: 30053, guest_port: 53 }] } }, true);
  writeFileSync(join(m.folder, 'blank.raw'), Buffer.alloc(1 << 20));
  await m.image('build', { name: 'leap', distribution: 'opensuse', packages: ['nginx'], cloud_init: true });
  await m.call('POST', '/api/vms/spare/snapshots', { name: 'fresh' });
  await m.call('POST', '/api/vms/spare/snapshots', { name: 'tried', description: 'Before the change' });
  await m.call('POST', '/api/backups', { vm_name: 'web', description: 'The first one' });
  await m.call('POST', '/api/backups/policies', { name: 'nightly', vm_tags: ['prod'], schedule_type: 'daily', time: '02:00', timezone: 'Europe/Berlin', keep_daily: 7 });
  await m.call('POST', '/api/webhooks', { url: 'https://example.com/hook', events: ['vm.failed'] });
  await m.call('POST', '/api/dataplane/groups', { name: 'web', tenant: 'acme', rules: [{ direction: 'ingress', action: 'allow', protocol: 'tcp', ports: [{ port: 80 }], entity: 'all' }] });
  await m.call('POST', '/api/vms/web/dataplane/policy', { groups: ['web'], ingress: { default: 'deny', rules: [{ action: 'allow', protocol: 'tcp', ports: [{ port: 22 }], cidr: '10.0.0.0/8' }] } });
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (m as Management | undefined)?.stop();
});

const pages: [name: string, path: string, expected: string | RegExp][] = [
  ['overview', '/', 'Need attention'],
  ['vms', '/vms', 'spare'],
  ['vms-none', '/vms?state=failed', 'No VM matches'],
  ['create', '/new-vm', 'Create the VM'],
  ['vm', '/vms/web?tenant=acme', 'Usage'],
  ['vm-snapshots', '/vms/spare#snapshots', 'the disk stands on it'],
  ['vm-backups', '/vms/web#backups', /completed|running/],
  ['vm-network', '/vms/web#network', 'In: what comes to it'],
  ['vm-console', '/vms/spare#console', 'It has a console while it runs'],
  ['vm-screen', '/vms/spare#screen', 'It has a screen while it runs'],
  ['vm-events', '/vms/web#events', 'created'],
  ['vm-missing', '/vms/nowhere', 'There is no such VM here'],
  ['images-none', '/images?state=cancelled', 'No image matches'],
  ['images', '/images', 'built of openSUSE'],
  ['images-installers', '/images#iso', 'There are no installers'],
  ['image-missing', '/images/0193b3f0-0000-7000-8000-000000000000', 'There is no such image here'],
  ['backups', '/backups', 'web'],
  ['backup-policies', '/backups#policies', 'Every day at 02:00, Europe/Berlin'],
  ['network', '/network', 'Security groups'],
  ['network-policies', '/network#policies', 'There are no policies'],
  ['network-decisions', '/network#decisions', 'Nothing was decided yet'],
  ['compliance', '/compliance', 'Nothing was scanned yet'],
  ['jobs', '/jobs', 'Make web'],
  ['tenants', '/tenants', 'A shop'],
  ['users', '/users', 'ulla'],
  ['billing', '/billing', /vCPU hours|Nothing was used/],
  ['billing-prices', '/billing#prices', 'No prices were set yet'],
  ['billing-invoices', '/billing#invoices', 'There are no invoices'],
  ['webhooks', '/webhooks', 'https://example.com/hook'],
  ['audit', '/audit', 'tenant.put'],
  ['account', '/account', 'Second factor'],
  ['not-found', '/nowhere', 'There is no such page here'],
];

for (const [name, path, expected] of pages) {
  test(`the page ${name} is whole in both themes and widths`, async ({ page }) => {
    await page.setViewportSize({ width: 1280, height: 860 });
    await page.emulateMedia({ colorScheme: 'light' });
    await open(page, m, path);
    for (const width of [1280, narrow]) {
      await page.setViewportSize({ width, height: 860 });
      await page.emulateMedia({ colorScheme: 'light' });
      await expect(page.getByRole('main').getByText(expected).filter({ visible: true }).first()).toBeVisible();
      await expect(page.locator('.skeleton')).toHaveCount(0);
      await expectNoSidewaysScroll(page);
      if (width === 1280) await expectAccessible(page);
      await shot(page, `vm-${name}-light-${width}`, true);
      await page.emulateMedia({ colorScheme: 'dark' });
      if (width === narrow) await expectAccessible(page);
      await shot(page, `vm-${name}-dark-${width}`, true);
    }
  });
}

/** The code that an authenticator app shows (RFC 6238). */
function codeOf(secret: string, at: number): string {
  const bits = Array.from(secret.replaceAll(/[\s=]/g, ''), (c) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(c).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from((bits.match(/.{8}/g) ?? []).map((b) => Number.parseInt(b, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const sum = createHmac('sha1', key).update(step).digest();
  return String((sum.readUInt32BE((sum[19] ?? 0) & 15) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}

test('somebody sets a second factor up, and signs in with a code and with a recovery code', async ({ page }) => {
  await open(page, m, '/account', { username: 'ulla', password: 'password of ulla' });
  await page.getByRole('button', { name: 'Set it up…' }).click();
  const setup = await dialog(page, 'vm-2fa', 'Set up the second factor');
  const secret = (await setup.getByRole('group', { name: 'Secret' }).locator('pre').textContent()) ?? '';
  await setup.getByLabel('Code that the app shows now').fill('000000');
  await setup.getByRole('button', { name: 'Turn it on' }).click();
  await expect(setup.getByText('Invalid two-factor code')).toBeVisible();
  await setup.getByLabel('Code that the app shows now').fill(codeOf(secret, Date.now()));
  await setup.getByRole('button', { name: 'Turn it on' }).click();
  const kept = await dialog(page, 'vm-2fa-codes', 'Keep these recovery codes');
  await page.keyboard.press('Escape');
  await expect(kept).toBeVisible();
  const codes = await kept.getByRole('list', { name: 'Recovery codes' }).getByRole('listitem').allTextContents();
  expect(codes).toHaveLength(10);
  await kept.getByRole('button', { name: 'I have kept them' }).click();
  await expect(page.getByRole('button', { name: 'Turn it off…' })).toBeVisible();
  await page.getByRole('button', { name: 'Sign out' }).click();

  const password = async () => {
    await page.getByLabel('Username').fill('ulla');
    await page.getByLabel('Password').fill('password of ulla');
    await page.keyboard.press('Enter');
    await expect(page.getByLabel('Code')).toBeFocused();
  };
  await password();
  await expectAccessible(page);
  await shot(page, 'vm-signin-code');
  await page.getByLabel('Code').fill('123456');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('alert')).toContainText('Invalid two-factor code');
  await page.getByLabel('Code').fill(codes[0] ?? '');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'My account' })).toBeVisible();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await password();
  // A code of the next step: that of this one is used up.
  await page.getByLabel('Code').fill(codeOf(secret, Date.now() + 30_000));
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'My account' })).toBeVisible();
});

test('who may only read sees no buttons to change anything, and no pages of admins', async ({ page }) => {
  await open(page, m, '/vms', { username: 'vera', password: 'password of vera' });
  await expect(page.getByRole('link', { name: 'web', exact: true })).toBeVisible();
  await expect(page.getByRole('link', { name: 'spare' })).toHaveCount(0); // it is nobody's
  await expect(page.getByRole('link', { name: 'Create a VM' })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'Users' })).toHaveCount(0);
  await page.getByRole('link', { name: 'web', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'web', level: 1 })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Start', exact: true })).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Actions for web' })).toHaveCount(0);
  await page.goto(`${m.url}/users`);
  await expect(page.getByText('There is no such page here')).toBeVisible();
  await page.goto(m.url);
  await expect(page.getByText('Quota of acme')).toBeVisible();
});

test('the list is searched, filtered and acted on by the keyboard, and its address says what it shows', async ({ page }) => {
  await open(page, m, '/vms');
  await page.getByLabel('Search all VMs').fill('spa');
  await expect(page.getByRole('link', { name: 'web', exact: true })).toHaveCount(0);
  await expect(page).toHaveURL(/filter=spa/);
  await page.getByLabel('Search all VMs').fill('');
  await page.getByLabel('Tag, exactly').fill('prod');
  await expect(page.getByRole('link', { name: 'spare' })).toHaveCount(0);
  await page.reload();
  await expect(page.getByRole('link', { name: 'web', exact: true })).toBeVisible();
  await expect(page.getByRole('link', { name: 'spare' })).toHaveCount(0);
  await page.goto(`${m.url}/vms`);
  // One that is protected is left out.
  await m.call('PATCH', '/api/vms/spare', { protected: true });
  await m.made('gone');
  await page.getByLabel('Search all VMs').fill('e');
  await page.getByLabel('Select gone').focus();
  await page.keyboard.press('Space');
  await page.getByLabel('Select spare').check();
  await page.getByRole('toolbar', { name: 'Actions on the selection' }).getByRole('button', { name: 'Delete' }).click();
  const many = await dialog(page, 'vm-bulk', /^Delete 1 VM/);
  await expect(many.getByText('Left out: 1 VM')).toBeVisible();
  await many.getByRole('button', { name: 'Delete 1 VM' }).click();
  await expect(many.getByText('1 of 1 VM done')).toBeVisible();
  await many.getByRole('button', { name: 'Close' }).last().click();
  await expect(page.getByRole('link', { name: 'gone' })).toHaveCount(0);
  await choose(page, 'Actions for spare', 'Allow deleting');
});

test('the console and the screen of a VM that runs are drawn', async ({ page }) => {
  await open(page, m, '/vms/open?tenant=-');
  await expect(page.getByText('0.0.0.0:30053 leads to udp port 53')).toBeVisible();
  await page.getByRole('tab', { name: 'Console' }).click();
  await expect(page.getByText('connected', { exact: true })).toBeVisible();
  await expect(page.getByRole('group', { name: 'Console of open' })).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'vm-console-running', true);
  await page.setViewportSize({ width: narrow, height: 860 });
  await page.emulateMedia({ colorScheme: 'dark' });
  await expectNoSidewaysScroll(page);
  await expectAccessible(page);
  await shot(page, 'vm-console-running-dark-narrow', true);
  await page.getByRole('tab', { name: 'Screen' }).click();
  await expect(page.getByText(/^connected$|There is no screen to show/).first()).toBeVisible();
  await expectAccessible(page);
});

test('files are looked at in a backup, and taken out of it', async ({ page }) => {
  // A file system with files, made here, and written to the disk of a VM.
  const disk = join(m.folder, 'files.raw');
  const content = join(m.folder, 'content');
  mkdirSync(join(content, 'etc'), { recursive: true });
  writeFileSync(join(content, 'etc', 'motd'), 'from the backup\n');
  execFileSync('mke2fs', ['-q', '-t', 'ext4', '-L', 'root', '-d', content, disk, '32M']);
  await m.made('files', {}, true);
  let connected = false;
  for (let i = 0; i < 300 && !connected; i++) {
    connected = await m.call('POST', '/api/vms/files/agent/put-file', { path: '/tmp/fs.gz', content: gzipSync(readFileSync(disk)).toString('base64') }).then(
      () => true,
      () => false,
    );
    if (!connected) await new Promise((next) => setTimeout(next, 200));
  }
  await m.call('POST', '/api/vms/files/agent/exec', { argv: ['/bin/sh', '-ec', 'busybox zcat /tmp/fs.gz >/dev/vda; sync'] });
  const backup = await m.call<{ id: string; job_id: string }>('POST', '/api/backups', { vm_name: 'files' });
  await m.call('GET', `/api/jobs/${backup.job_id}?wait=90`);

  await open(page, m, '/backups?vm=files');
  await page.getByRole('button', { name: /^Actions for/ }).click();
  await page.getByRole('menuitem', { name: 'Files' }).click();
  await expect(page.getByRole('heading', { name: 'Files of files' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'root' })).toHaveAttribute('aria-pressed', 'true', { timeout: 60_000 });
  await page.getByRole('link', { name: 'etc/' }).click();
  const row = page.getByRole('row').filter({ hasText: 'motd' });
  await expect(row).toContainText('16 B');
  await expectAccessible(page);
  await shot(page, 'vm-backup-files');
  // Chromium would ask where to save the file.
  await page.evaluate(() => Reflect.deleteProperty(window, 'showSaveFilePicker'));
  await row.getByRole('button', { name: /^Actions for/ }).click();
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: 'Download' }).click()]);
  expect(readFileSync(await file.path(), 'utf8')).toBe('from the backup\n');
  await page.getByRole('navigation', { name: 'Folder' }).getByRole('link', { name: '/', exact: true }).click();
  await expect(page.getByRole('link', { name: 'lost+found/' })).toBeVisible();
  await m.call('DELETE', `/api/backups/${backup.id}/files/volumes`);
  await m.call('DELETE', '/api/vms/files');
});

test('an image is imported, made larger, offered to new VMs and deleted', async ({ page }) => {
  await open(page, m, '/images');
  await page.getByRole('button', { name: 'Import…' }).click();
  const form = await dialog(page, 'vm-import', 'Import an image');
  await form.getByLabel('Name').fill('blank');
  await form.getByLabel('Path').fill('/etc/passwd');
  await form.getByLabel('Format').selectOption('raw');
  await form.getByRole('button', { name: 'Import the image' }).click();
  // The service's refusal stands at its field, and what was typed stays.
  await expect(form.getByText('Is not below a folder of the setting image-import-folders.')).toBeVisible();
  await form.getByLabel('Path').fill(join(m.folder, 'blank.raw'));
  await form.getByRole('button', { name: 'Import the image' }).click();
  await expect(page.getByRole('heading', { name: 'blank', level: 1 })).toBeVisible();
  const badge = page.locator('.page-title .badge');
  await expect(badge).toHaveText('completed', { timeout: 60_000 });
  await expect(page.getByText('1 MiB', { exact: true }).first()).toBeVisible();

  await choose(page, 'Actions for blank', 'Resize…');
  const larger = await dialog(page, 'vm-image-resize', 'Make the disk of blank larger');
  await larger.getByLabel('Size in GiB').fill('0');
  await larger.getByRole('button', { name: 'Resize the image' }).click();
  await expect(larger.getByLabel('Size in GiB')).toHaveAttribute('aria-invalid', 'true');
  await larger.getByLabel('Size in GiB').fill('2');
  await larger.getByRole('button', { name: 'Resize the image' }).click();
  await expect(page.getByText('2 GiB', { exact: true })).toBeVisible({ timeout: 60_000 });
  await expectAccessible(page);

  await choose(page, 'Actions for blank', 'Create a VM of it');
  await expect(page.getByLabel('Image')).toHaveValue('blank');
  await page.getByLabel('Ports of the host').fill('30081:80, 80');
  await page.getByLabel('Name', { exact: true }).fill('of-blank');
  await page.getByRole('button', { name: 'Create the VM' }).click();
  await expect(page.getByText('“80” is not a port of the host and one of the guest.')).toBeVisible();
  await expect(page.locator('datalist option[value="blank"]')).toHaveCount(1);

  await page.goto(`${m.url}/images`);
  await choose(page, 'Actions for blank', 'Delete…');
  const remove = await dialog(page, 'vm-image-delete', 'Delete the image blank?');
  await remove.getByRole('button', { name: 'Delete the image' }).click();
  await expect(page.getByRole('link', { name: 'blank' })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'leap' })).toBeVisible();
});

test('a build that fails says why, beside its log, in both themes and widths', async ({ page }) => {
  await page.setViewportSize({ width: 1280, height: 860 });
  await open(page, m, '/images');
  await page.getByRole('button', { name: 'Build an image' }).click();
  const form = await dialog(page, 'vm-build', 'Build an image');
  await form.getByLabel('Name').fill('tumble');
  await form.getByLabel('Distribution').selectOption('opensuse');
  await form.getByLabel('Packages').fill('nginx\nNot a package');
  await form.getByRole('button', { name: 'Build the image' }).click();
  await expect(form.getByLabel('Packages')).toHaveAttribute('aria-invalid', 'true');
  await form.getByLabel('Packages').fill('nginx');
  await form.getByRole('button', { name: 'Build the image' }).click();
  await expect(page.getByRole('heading', { name: 'tumble', level: 1 })).toBeVisible();
  await expect(page.locator('.page-title .badge')).toHaveText('failed', { timeout: 60_000 });
  await expect(page.getByRole('alert').filter({ hasText: 'It was not made.' })).toContainText('zypper');
  await expect(page.getByText(/This is all|Nothing was printed/)).toBeVisible();
  for (const width of [1280, narrow]) {
    await page.setViewportSize({ width, height: 860 });
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await expectNoSidewaysScroll(page);
      await expectAccessible(page);
      await shot(page, `vm-image-${colorScheme}-${width}`, true);
    }
  }
});

test('a download is chosen by its distribution', async ({ page }) => {
  await open(page, m, '/images');
  await page.getByRole('button', { name: 'Download…' }).click();
  const form = await dialog(page, 'vm-download', 'Download an image');
  await expect(form.getByText('https://cloud.debian.org')).toBeVisible();
  await form.getByLabel('Distribution').selectOption('ubuntu');
  await form.getByLabel('Release and format').selectOption('ubuntu/24.04/iso');
  await expect(form.getByText('An installer: a VM of it boots from it.')).toBeVisible();
  await form.getByRole('button', { name: 'Cancel' }).click();
});
