/** The console of the hypervisor, in front of a daemon that runs real VMs. */
import { join } from 'node:path';
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { adminToken, open, startHypervisor, tenantToken, whyNot, type Hypervisor } from './hypervisor';

const narrow = 360;
const booting = 60_000;

const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : whyNot();
test.skip(reason !== undefined, reason);
test.describe.configure({ timeout: 120_000 });

let hv: Hypervisor;
/** A VM of the demo guest that runs. */
let guest: { id: string; name: string };
/** A PC with a screen, and an empty disk. */
let pc: { id: string; name: string };

test.beforeAll(async () => {
  test.setTimeout(240_000);
  hv = await startHypervisor();
  const added = await hv.call<{ id: string }>('POST', '/v1/images/catalog', { name: 'blank', path: join(hv.folder, 'blank.qcow2') });
  await hv.call('GET', `/v1/operations/${added.id}?wait=60`);
  guest = await hv.demo('guest', { tenant: 'shop', labels: { tier: 'web' } });
  pc = await hv.call('POST', '/v1/vms', { name: 'pc', image: 'blank', memory_mib: 128, start: true });
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (hv as Hypervisor | undefined)?.stop();
});

test('one signs in with a token, which no script can read', async ({ page }) => {
  await page.goto(`${hv.url}/images`);
  await page.getByLabel('Token').fill('wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('the token is not valid');
  await expectAccessible(page);
  await shot(page, 'hypervisor-signin');
  await page.getByLabel('Token').fill(adminToken);
  await page.keyboard.press('Enter');
  // The page that was asked for is there, not the first one.
  await expect(page.getByRole('heading', { name: 'Images', level: 1 })).toBeVisible();
  const stored = await page.evaluate(() => ({ local: Object.entries(localStorage), session: Object.entries(sessionStorage), cookies: document.cookie }));
  expect(stored).toEqual({ local: [], session: [], cookies: '' });
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
});

const pages: [name: string, path: () => string, expected: string][] = [
  ['overview', () => '/', 'qemu'],
  ['vms', () => '/vms', 'guest'],
  ['vm', () => `/vms/${guest.id}`, 'Starts with the host'],
  ['vm-snapshots', () => `/vms/${guest.id}#snapshots`, 'There are no snapshots'],
  ['vm-backups', () => `/vms/${pc.id}#backups`, 'There are no backups'],
  ['vm-events', () => `/vms/${guest.id}#events`, 'Event'],
  ['vm-run', () => `/vms/${guest.id}#run`, 'Command'],
  ['vm-missing', () => '/vms/nowhere', 'There is no such VM here'],
  ['images', () => '/images', 'blank'],
  ['operations', () => '/operations', 'Image demo'],
  ['fleet', () => '/fleet', 'gone does not answer.'],
  ['audit', () => '/audit', 'image.add'],
  ['not-found', () => '/nowhere', 'There is no such page here'],
];

for (const [name, path, expected] of pages) {
  test(`the page ${name} is whole in both themes and widths`, async ({ page }) => {
    await page.setViewportSize({ width: 1280, height: 860 });
    await page.emulateMedia({ colorScheme: 'light' });
    await open(page, hv.url + path());
    for (const width of [1280, narrow]) {
      await page.setViewportSize({ width, height: 860 });
      await page.emulateMedia({ colorScheme: 'light' });
      await expect(page.getByRole('main').getByText(expected).filter({ visible: true }).first()).toBeVisible();
      await expect(page.locator('.skeleton')).toHaveCount(0);
      await expectNoSidewaysScroll(page);
      if (width === 1280) await expectAccessible(page);
      await shot(page, `hypervisor-${name}-light-${width}`, true);
      await page.emulateMedia({ colorScheme: 'dark' });
      if (width === narrow) await expectAccessible(page);
      await shot(page, `hypervisor-${name}-dark-${width}`, true);
    }
  });
}

test('a VM is made by the form, whose errors stand at their fields, runs, is paused, goes on, is stopped and deleted', async ({ page }) => {
  await open(page, `${hv.url}/vms`);
  await page.getByRole('button', { name: 'Create a VM' }).click();
  const form = await dialog(page, 'hypervisor-create', 'Create a VM');
  const nothing = form.getByText('Without an image or a kernel the VM gets an empty disk, and boots nothing.');
  await expect(nothing).toBeVisible();
  await form.getByLabel('Name', { exact: true }).fill('not a name');
  await form.getByLabel('Image').fill('demo');
  await expect(nothing).toHaveCount(0);
  await form.getByLabel('Memory in MiB').fill('4');
  await form.getByRole('button', { name: 'Create the VM' }).click();
  await expect(form.getByText('May have letters and digits, and between them any of _ -.')).toBeVisible();
  await expect(form.getByText('Must be at least 16.')).toBeVisible();
  await expect(form.getByLabel('Name', { exact: true })).toBeFocused();

  // What only the daemon knows stands at the field too, with the limit's name.
  await form.getByLabel('Name', { exact: true }).fill('made');
  await form.getByLabel('Memory in MiB').fill('256');
  await form.getByLabel('Processors').fill('5');
  await form.getByRole('button', { name: 'Create the VM' }).click();
  const processors = form.getByLabel('Processors');
  await expect(processors).toHaveAttribute('aria-invalid', 'true');
  await expect(processors).toHaveAccessibleDescription(/max_vcpus/);
  await expect(processors).toBeFocused();
  await dialog(page, 'hypervisor-create-refused', 'Create a VM');
  await processors.fill('1');
  await form.getByRole('button', { name: 'Create the VM' }).click();

  await expect(page.getByRole('heading', { name: 'made', level: 1 })).toBeVisible({ timeout: booting });
  const badge = page.locator('.page-title .badge');
  await expect(badge).toHaveText('running', { timeout: booting });
  await choose(page, 'Actions for made', 'Pause');
  await expect(badge).toHaveText('paused');
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await expect(badge).toHaveText('running');
  await choose(page, 'Actions for made', 'Start with the host');
  await expect(page.getByText('starts with the host from now on')).toBeVisible();

  await choose(page, 'Actions for made', 'Reset…');
  await (await dialog(page, 'hypervisor-reset', 'Reset made?')).getByRole('button', { name: 'Reset the VM' }).click();
  await expect(page.getByText('The guest of made starts again.')).toBeVisible();
  await choose(page, 'Actions for made', 'Restart…');
  const restart = await dialog(page, 'hypervisor-restart', 'Restart made');
  await restart.getByLabel('Kill it at once').check();
  await restart.getByRole('button', { name: 'Restart the VM' }).click();
  await expect(page.getByText('made has restarted.')).toBeVisible({ timeout: booting });
  await expect(badge).toHaveText('running');

  await page.getByRole('button', { name: 'Stop…' }).click();
  const stop = await dialog(page, 'hypervisor-stop', 'Stop made');
  await stop.getByLabel('Kill it at once').check();
  await stop.getByRole('button', { name: 'Stop the VM' }).click();
  await expect(badge).toHaveText('stopped');

  await choose(page, 'Actions for made', 'Delete…');
  const sure = await dialog(page, 'hypervisor-delete', 'Delete made?');
  await expect(sure.getByRole('button', { name: 'Delete the VM' })).toBeDisabled();
  await sure.getByLabel('Type made to continue').fill('made');
  await sure.getByRole('button', { name: 'Delete the VM' }).click();
  await expect(page.getByRole('heading', { name: 'VMs', level: 1 })).toBeVisible();
  await expect(page.getByRole('table', { name: 'VMs' }).getByRole('link', { name: 'made' })).toHaveCount(0);
});

test('the console shows the guest’s shell, which answers what is typed, and comes back with the daemon', async ({ page }) => {
  const sockets: string[] = [];
  page.on('websocket', (s) => sockets.push(s.url()));
  await open(page, `${hv.url}/vms/${guest.id}`);
  await page.getByRole('tab', { name: 'Console' }).click();
  const console = page.getByRole('group', { name: 'Console of guest' });
  const rows = console.locator('.xterm-rows');
  await expect(page.getByText('connected', { exact: true })).toBeVisible();
  await console.locator('textarea').focus();
  await page.keyboard.type('echo $((6*7)) forty-two\n');
  await expect(rows).toContainText('42 forty-two');
  // Colours of any kind are drawn under the policy, which admits no style attribute.
  await page.keyboard.type("printf '\\033[38;2;0;110;50mtrue-%s\\033[0m\\n' colour\n");
  const coloured = rows.locator('span', { hasText: 'true-colour' }).last();
  await expect(coloured).toHaveCSS('color', 'rgb(0, 110, 50)');
  const font = await rows.evaluate((e) => getComputedStyle(e).fontSize);
  expect(font).toBe('13px');
  await expectAccessible(page);
  await shot(page, 'hypervisor-console-light', true);
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot(page, 'hypervisor-console-dark', true);

  // Each socket has a ticket of its own, and no credentials.
  expect(sockets[0]).toMatch(/\/console\?ticket=mtk_/);
  expect(sockets.join()).not.toContain(adminToken);
  await page.keyboard.press('Control+Shift+X');
  await expect(page.getByRole('button', { name: 'Copy', exact: true })).toBeFocused();

  await page.setViewportSize({ width: narrow, height: 740 });
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByRole('tab', { name: 'Console' }).click();
  await expect(rows).toContainText('42 forty-two');
  await expectNoSidewaysScroll(page);
  await shot(page, 'hypervisor-console-narrow', true);

  await hv.end();
  await expect(page.getByText('connecting again', { exact: true })).toBeVisible();
  await expect(page.getByText('The daemon does not answer.')).toBeVisible();
  await shot(page, 'hypervisor-console-lost', true);
  await hv.serve();
  await expect(page.getByText('connected', { exact: true })).toBeVisible({ timeout: 20_000 });
  await console.locator('textarea').focus();
  await page.keyboard.type('echo still-$((40+4))\n');
  await expect(rows).toContainText('still-44');
  expect(new Set(sockets).size).toBe(sockets.length);
  expect(sockets.length).toBeGreaterThanOrEqual(3);
});

test('the screen of a PC is drawn, and a VM without one says so kindly', async ({ page }) => {
  await open(page, `${hv.url}/vms/${pc.id}#screen`);
  const canvas = page.getByRole('group', { name: 'Screen of pc' }).locator('canvas');
  await expect(page.getByText('connected', { exact: true })).toBeVisible();
  await expect(canvas).toBeVisible();
  // The firmware has written something: not all pixels are alike.
  await expect
    .poll(() =>
      canvas.evaluate((c: HTMLCanvasElement) => {
        const { data } = c.getContext('2d')?.getImageData(0, 0, c.width, c.height) ?? { data: [] };
        return new Set(Array.from({ length: data.length / 4 }, (_, i) => `${data[4 * i]} ${data[4 * i + 1]} ${data[4 * i + 2]}`)).size;
      }),
    )
    .toBeGreaterThan(1);
  await expectAccessible(page);
  await shot(page, 'hypervisor-screen', true);
  await page.getByRole('button', { name: 'Type into the guest' }).click();
  await page.keyboard.press('Control+Shift+X');
  await expect(page.getByRole('button', { name: 'Type into the guest' })).toBeFocused();

  await page.getByRole('link', { name: 'VMs', exact: true }).first().click();
  await page.getByRole('table', { name: 'VMs' }).getByRole('link', { name: 'guest' }).click();
  await page.getByRole('tab', { name: 'Screen' }).click();
  await expect(page.getByText('There is no screen to show:')).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'hypervisor-screen-none', true);
});

test('a program is run in the guest, with what it printed and its exit code', async ({ page }) => {
  await open(page, `${hv.url}/vms/${guest.id}#run`);
  await page.getByLabel('Command', { exact: true }).fill('echo out; echo err >&2; exit 3');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.getByRole('region', { name: 'Output' })).toHaveText('out\n');
  await expect(page.getByRole('region', { name: 'Errors' })).toHaveText('err\n');
  await expect(page.getByText('exit code 3')).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'hypervisor-run', true);
  await page.getByLabel('As a command of the guest’s shell').uncheck();
  await page.getByLabel('Program and arguments').fill('/nowhere/program');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.getByText(/nowhere\/program/).last()).toBeVisible();
});

test('figures are drawn as they come', async ({ page }) => {
  await open(page, `${hv.url}/vms/${guest.id}`);
  const cpu = page.getByRole('figure', { name: 'Processors of the VM' });
  await expect(cpu).toBeVisible({ timeout: 20_000 });
  await hv.call('POST', `/v1/vms/${guest.id}/agent/exec`, { argv: ['/bin/sh', '-c', 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'] });
  await cpu.getByText('Show as a table').click();
  await expect.poll(async () => (await page.getByRole('region', { name: 'Processors of the VM, as a table' }).locator('td.end').allTextContents()).some((t) => Number(t) > 20), { timeout: 20_000 }).toBe(true);
  await expect(page.getByRole('figure', { name: 'Memory of the VM' }).locator('b')).toHaveText(/[1-9]\d* MiB/);
  await shot(page, 'hypervisor-plots', true);
});

test('the plots of a VM begin with what the daemon remembers', async ({ page }) => {
  test.setTimeout(180_000);
  const remembered = () => hv.call<{ points: unknown[] }>('GET', `/v1/vms/${guest.id}/history`).then((h) => h.points.length);
  await expect.poll(remembered, { timeout: 150_000, intervals: [2_000] }).toBeGreaterThan(2);
  await open(page, `${hv.url}/vms/${guest.id}`);
  const ranges = page.getByRole('group', { name: 'Time that the plots show' });
  for (const again of [false, true]) {
    if (again) await page.reload();
    const began = Date.now();
    const memory = page.getByRole('figure', { name: 'Memory of the VM' });
    await memory.getByText('Show as a table').click();
    const oldest = memory.getByRole('row').last().locator('time');
    expect(Date.parse((await oldest.getAttribute('datetime')) ?? '')).toBeLessThan(began - 60_000);
  }
  await ranges.getByRole('button', { name: '7 days' }).click();
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByRole('tab', { name: 'Overview' }).click();
  await page.getByRole('link', { name: 'VMs', exact: true }).first().click();
  await page.goBack();
  await expect(ranges.getByRole('button', { name: '7 days' })).toHaveAttribute('aria-pressed', 'true');
  await expectAccessible(page);
  await shot(page, 'hypervisor-history', true);
});

test('a VM is put back to a snapshot, and backed up and restored', async ({ page }) => {
  await open(page, `${hv.url}/vms/${pc.id}#snapshots`);
  await page.getByRole('button', { name: 'Create a snapshot' }).click();
  const form = await dialog(page, 'hypervisor-snapshot', 'Create a snapshot of pc');
  await form.getByLabel('Name', { exact: true }).fill('before');
  await form.getByRole('button', { name: 'Create the snapshot' }).click();
  const row = page.getByRole('table', { name: 'Snapshots of pc' }).getByRole('row', { name: /before/ });
  await expect(row).toContainText('of memory', { timeout: 30_000 });
  await choose(page, 'Actions for before', 'Put the VM back to it…');
  await (await dialog(page, 'hypervisor-revert', 'Put pc back to before?')).getByRole('button', { name: 'Put it back' }).click();
  await expect(page.getByText('pc is as in before.')).toBeVisible({ timeout: 30_000 });
  await choose(page, 'Actions for before', 'Delete…');
  await (await dialog(page, 'hypervisor-snapshot-delete')).getByRole('button', { name: 'Delete the snapshot' }).click();
  await expect(page.getByText('There are no snapshots')).toBeVisible({ timeout: 30_000 });

  await page.getByRole('tab', { name: 'Backups' }).click();
  await page.getByRole('button', { name: 'Create a backup' }).click();
  await (await dialog(page, 'hypervisor-backup')).getByRole('button', { name: 'Create the backup' }).click();
  const backups = page.getByRole('table', { name: 'Backups of pc' });
  await expect(backups.getByRole('row', { name: /full/ })).toBeVisible({ timeout: 30_000 });
  await shot(page, 'hypervisor-backups', true);
  await backups.getByRole('button', { name: /^Actions for/ }).click();
  // What the daemon would refuse is not offered.
  await expect(page.getByRole('menuitem', { name: 'Put this VM’s disk back…' })).toHaveCount(0);
  await expect(page.getByText('The VM is running. Stop it to put its disk back.')).toBeVisible();
  await page.getByRole('menuitem', { name: 'Create a VM from it…' }).click();
  await (await dialog(page, 'hypervisor-restore')).getByRole('button', { name: 'Create the VM' }).click();
  await expect.poll(async () => (await hv.call<{ name: string }[]>('GET', '/v1/vms')).map((v) => v.name), { timeout: 30_000 }).toContain('pc-restored');
});

test('images are uploaded, locked, renamed and removed', async ({ page }) => {
  await open(page, `${hv.url}/images`);
  await page.getByRole('button', { name: 'Upload an image' }).click();
  const form = await dialog(page, 'hypervisor-upload', 'Upload an image');
  await form.getByRole('button', { name: 'Upload', exact: true }).click();
  await expect(form.getByText('Choose a file.')).toBeVisible();
  await form.getByLabel('File').setInputFiles(join(hv.folder, 'blank.qcow2'));
  await expect(form.getByLabel('Name', { exact: true })).toHaveValue('blank');
  await form.getByLabel('Name', { exact: true }).fill('sent');
  await form.getByRole('button', { name: 'Upload', exact: true }).click();
  const images = page.getByRole('table', { name: 'Images' });
  const row = (name: string) => images.getByRole('row', { name: new RegExp(`^Select ${name} `) });
  await expect(row('sent')).toContainText('disk', { timeout: 20_000 });
  await choose(page, 'Actions for sent', 'Lock');
  await expect(row('sent').getByText('locked', { exact: true })).toBeVisible();
  await choose(page, 'Actions for sent', 'Make read-only');
  await expect(row('sent').getByText('read-only', { exact: true })).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'hypervisor-images-switches', true);
  await choose(page, 'Actions for sent', 'Allow changes');
  await expect(row('sent').getByText('read-only', { exact: true })).toHaveCount(0);
  await choose(page, 'Actions for sent', 'Rename…');
  const rename = await dialog(page, 'hypervisor-rename');
  await rename.getByLabel('New name').fill('renamed');
  await rename.getByRole('button', { name: 'Rename the image' }).click();
  await expect(row('renamed')).toBeVisible();
  await choose(page, 'Actions for renamed', 'Remove…');
  await (await dialog(page, 'hypervisor-image-remove')).getByRole('button', { name: 'Remove the image' }).click();
  await expect(row('renamed')).toHaveCount(0);
  await choose(page, 'More of images', 'Clean up…');
  await (await dialog(page, 'hypervisor-clean')).getByRole('button', { name: 'Clean up' }).click();
  await expect(page.getByText(/files? removed/)).toBeVisible();
});

test('VMs and images are searched and sorted by the daemon, and a tenant finds only its own', async ({ page }) => {
  await open(page, `${hv.url}/vms`);
  const vms = page.getByRole('table', { name: 'VMs' });
  const search = page.getByRole('searchbox', { name: 'Search all VMs' });
  await expect(search).toHaveAttribute('placeholder', 'Name, image, address, label or ID');
  for (const [text, found, other] of [['TIER=web', 'guest', 'pc'], ['blank', 'pc', 'guest'], [pc.id, 'pc', 'guest']] as const) {
    const asked = page.waitForRequest((r) => new URL(r.url()).searchParams.get('q') === text);
    await search.fill(text);
    await asked;
    await expect(vms.getByRole('link', { name: found, exact: true })).toBeVisible();
    await expect(vms.getByRole('link', { name: other, exact: true })).toHaveCount(0);
  }
  await search.fill('');
  const sorted = page.waitForRequest((r) => new URL(r.url()).searchParams.get('sort') === 'name');
  await vms.getByRole('button', { name: 'VM', exact: true }).click();
  await sorted;
  await expect(page).toHaveURL(`${hv.url}/vms?sort=name`);
  for (const [name, width, height] of [['wide', 1440, 900], ['narrow', 390, 844]] as const) {
    await page.setViewportSize({ width, height });
    await expectNoSidewaysScroll(page);
    await shot(page, `list-vms-${name}`);
  }
  await page.setViewportSize({ width: 1280, height: 860 });

  // A tile leads to what it counts.
  await open(page, hv.url);
  await page.locator('a.tile', { hasText: 'VMs running' }).click();
  await expect(page).toHaveURL(/\/vms\?state=(running|failed)$/);
  await expect(vms.getByRole('row').nth(1)).toBeVisible();

  await open(page, `${hv.url}/images?filter=BLANK`);
  const images = page.getByRole('table', { name: 'Images' });
  await expect(images.getByRole('row', { name: /^Select blank / })).toBeVisible();
  await expect(images.getByRole('row', { name: /^Select demo / })).toHaveCount(0);

  await page.keyboard.press('Control+k');
  const palette = page.getByRole('dialog', { name: 'Go to' });
  await palette.getByRole('combobox').fill('tier=web');
  await expect(palette.getByRole('option', { name: /guest.*VM, / })).toBeVisible();

  const found = await hv.call<{ name: string }[]>('GET', '/v1/vms?q=e', undefined, tenantToken);
  expect(found.map((v) => v.name)).not.toContain('pc');
});

test('hosts of the fleet are cordoned, and those that do not answer are named', async ({ page }) => {
  await open(page, `${hv.url}/fleet`);
  const hosts = page.getByRole('table', { name: 'Hosts', exact: true });
  await expect(hosts.getByRole('row', { name: /gone/ })).toContainText('silent', { timeout: 20_000 });
  await choose(page, 'Actions for here', 'Cordon');
  await expect(hosts.getByRole('row', { name: /here/ })).toContainText('cordoned');
  await choose(page, 'Actions for here', 'Uncordon');
  await expect(hosts.getByRole('row', { name: /here/ })).toContainText('healthy');
  await expect(page.getByRole('table', { name: 'VMs of all hosts' }).getByRole('row', { name: /guest here/ })).toContainText('running');
});

test('a tenant sees what is its own, and nothing that only admins may do', async ({ page }) => {
  await open(page, `${hv.url}/vms`, tenantToken);
  const vms = page.getByRole('table', { name: 'VMs' });
  await expect(vms.getByRole('link', { name: 'guest' })).toBeVisible();
  await expect(vms.getByRole('link', { name: 'pc' })).toHaveCount(0);
  await expect(page.getByText('of the tenant shop')).toBeVisible();
  await expect(page.getByRole('link', { name: 'Audit log' })).toHaveCount(0);
  await page.getByRole('link', { name: 'Images' }).click();
  await expect(page.getByRole('table', { name: 'Images' })).toContainText('demo');
  await expect(page.getByRole('button', { name: 'Upload an image' })).toHaveCount(0);
  await page.getByRole('link', { name: 'Fleet' }).click();
  await expect(page.getByRole('table', { name: 'VMs of all hosts' })).toContainText('guest');
  await expect(page.getByRole('table', { name: 'Hosts', exact: true })).toHaveCount(0);
  await expectAccessible(page);
});

test('the keyboard alone finds a VM, opens it, and reads its events', async ({ page }) => {
  await open(page, hv.url);
  await page.keyboard.press('g');
  await page.keyboard.press('v');
  await expect(page.getByRole('heading', { name: 'VMs', level: 1 })).toBeFocused();
  await expect(page.getByRole('link', { name: 'guest' })).toBeVisible();
  await page.keyboard.press('/');
  await page.keyboard.type('guest');
  await expect(page.getByRole('table', { name: 'VMs' }).locator('tbody tr')).toHaveCount(1);
  for (let i = 0; i < 30 && !(await page.getByRole('link', { name: 'guest', exact: true }).evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'guest', level: 1 })).toBeFocused();
  for (let i = 0; i < 30 && !(await page.getByRole('tab', { name: 'Overview' }).evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press('Tab');
  await page.keyboard.press('End');
  await expect(page.getByRole('tab', { name: 'Events' })).toBeFocused();
  await expect(page.getByRole('table', { name: 'Events of guest' })).toContainText('running');
});
