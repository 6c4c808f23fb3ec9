/** What a newcomer does in the first ten minutes, in the browser alone, with a real guest. */
import { choose, dialog, expect, expectAccessible, shot, test } from './console';
import { signIn } from './session';
import { startManagement, whyNot, type Management } from './vm';

const booting = 90_000;
const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : whyNot();
test.skip(reason !== undefined, reason);
test.describe.configure({ timeout: 240_000 });

let m: Management;

test.beforeAll(async () => {
  test.setTimeout(240_000);
  m = await startManagement();
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (m as Management | undefined)?.stop();
});

test('a newcomer makes a VM, snapshots it, backs it up and restores it, and closes its network', async ({ page }) => {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto(m.url);
  await page.getByLabel('Username').fill(m.username);
  await page.getByLabel('Password').fill('wrong');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('Invalid credentials');
  await expectAccessible(page);
  await shot(page, 'vm-signin');
  await page.getByLabel('Password').fill(m.password);
  await page.keyboard.press('Enter');

  // Make it: errors stand at their fields, of the browser's own and of the service's.
  await page.getByRole('main').getByRole('link', { name: 'Create the first one' }).click();
  await page.getByLabel('Name', { exact: true }).fill('not a name');
  await page.getByLabel('Image').fill('demo');
  await page.getByLabel('Disk in GiB').fill('1');
  await page.getByLabel('Network', { exact: true }).selectOption('bridge');
  await page.getByLabel('Network policy').selectOption('deny');
  await page.getByLabel('TCP ports that are allowed in').fill('22, 70000');
  await page.getByRole('button', { name: 'Create the VM' }).click();
  await expect(page.getByText('May have letters and digits')).toBeVisible();
  await expect(page.getByText('“70000” is not a port')).toBeVisible();
  await page.getByLabel('Name', { exact: true }).fill('web');
  await page.getByLabel('TCP ports that are allowed in').fill('22, 80');
  await shot(page, 'vm-wizard');
  await page.getByRole('button', { name: 'Create the VM' }).click();
  await expect(page.getByRole('heading', { name: 'Making web' })).toBeVisible();
  await expect(page.getByText('web is ready.')).toBeVisible({ timeout: booting });
  await expectAccessible(page);
  await shot(page, 'vm-making');
  await page.getByRole('link', { name: 'Open web' }).click();
  const badge = page.locator('.page-title .badge');
  await expect(badge).toHaveText('running', { timeout: booting });
  await expect(page.getByRole('img', { name: /^Processors of the VM/ })).toBeVisible({ timeout: 30_000 });
  await shot(page, 'vm-running', true);

  // A snapshot with its memory.
  await page.getByRole('tab', { name: 'Snapshots' }).click();
  await page.getByRole('button', { name: 'Create a snapshot' }).click();
  const snapshot = await dialog(page, 'vm-snapshot', 'Create a snapshot of web');
  await snapshot.getByLabel('Name').fill('warm');
  await snapshot.getByRole('button', { name: 'Create the snapshot' }).click();
  await expect(page.getByText('the disk stands on it')).toBeVisible({ timeout: booting });
  await expect(page.locator('.tree')).toContainText('warm');

  // A backup, and a new VM of it.
  await page.getByRole('tab', { name: 'Backups' }).click();
  await page.getByRole('button', { name: 'Create a backup' }).click();
  const backup = await dialog(page, 'vm-backup', 'Back up web');
  await backup.getByRole('button', { name: 'Create the backup' }).click();
  const row = page.getByRole('row').filter({ hasText: 'completed' });
  await expect(row).toHaveCount(1, { timeout: booting });
  await row.getByRole('button', { name: /^Actions for/ }).click();
  await page.getByRole('menuitem', { name: 'Restore…' }).click();
  const restore = await dialog(page, 'vm-restore', 'Restore the backup of web');
  await restore.getByLabel('Name of the new VM').fill('web');
  await restore.getByRole('button', { name: 'Restore', exact: true }).click();
  // The name is taken: the service says so, and what was typed stays.
  await expect(restore.getByText(/web/).filter({ hasText: /taken|already|exists/i }).first()).toBeVisible();
  await restore.getByLabel('Name of the new VM').fill('web-2');
  await restore.getByRole('button', { name: 'Restore', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'web-2', level: 1 })).toBeVisible();
  await expect(badge).toHaveText('stopped', { timeout: booting });
  await expect(page.getByText('Until it has ended, nothing else can change this VM.')).toHaveCount(0, { timeout: booting });

  // The network policy of the first one: a rule more, and what holds in all.
  await page.goto(`${m.url}/vms/web?tenant=-#network`);
  await expect(page.getByText('in force')).toBeVisible({ timeout: booting });
  await page.getByRole('button', { name: 'Add a rule' }).first().click();
  const rule = await dialog(page, 'vm-rule', 'Add a rule');
  await rule.getByLabel('Whom').selectOption('cidr');
  await rule.getByLabel(/^Network/).fill('10.0.0.0/99');
  await rule.getByLabel('Protocol').selectOption('tcp');
  await rule.getByLabel('Ports').fill('8080-8090');
  await rule.getByRole('button', { name: 'Add the rule' }).click();
  await expect(rule.getByLabel(/^Network/)).toHaveAttribute('aria-invalid', 'true');
  await rule.getByLabel(/^Network/).fill('10.0.0.0/8');
  await rule.getByRole('button', { name: 'Add the rule' }).click();
  await expect(page.getByText('tcp 8080-8090')).toBeVisible();
  await expect(page.locator('.page').getByText('in force').first()).toBeVisible();
  await page.getByRole('tab', { name: 'What holds in all' }).click();
  await expect(page.getByRole('row').filter({ hasText: 'vm/ingress/1' })).toContainText('10.0.0.0/8');
  await expectAccessible(page);
  await shot(page, 'vm-effective', true);
  const below = (await m.call<{ mode: string; attached: boolean; revision: number }>('GET', '/api/vms/web/dataplane/status'));
  expect(below).toMatchObject({ mode: 'enforced', attached: true });

  // What is set up badly, and what to do.
  await page.goto(`${m.url}/compliance`);
  await page.getByRole('button', { name: 'Scan a VM' }).click();
  const scan = await dialog(page, 'vm-scan', 'Scan a VM');
  await scan.getByLabel('VM', { exact: true }).fill('web');
  await scan.getByRole('button', { name: 'Begin the scan' }).click();
  const scanned = page.getByRole('row').filter({ hasText: 'completed' });
  await expect(scanned).toHaveCount(1, { timeout: booting });
  await scanned.getByRole('button', { name: 'Actions for web' }).click();
  await page.getByRole('menuitem', { name: 'Results' }).click();
  const results = await dialog(page, 'vm-results', 'Scan of web: level-1');
  await expect(results.getByRole('columnheader', { name: 'What to do' })).toBeVisible();
  await results.getByRole('button', { name: 'Close' }).click();

  // Stopped and deleted, by its name.
  await page.goto(`${m.url}/vms/web?tenant=-`);
  await choose(page, 'Actions for web', 'Stop…');
  const stop = await dialog(page, 'vm-stop', 'Stop web');
  await stop.getByLabel('Switch it off at once').check();
  await stop.getByRole('button', { name: 'Stop the VM' }).click();
  await expect(badge).toHaveText('stopped', { timeout: booting });
  await choose(page, 'Actions for web', 'Delete…');
  const remove = await dialog(page, 'vm-delete', 'Delete web?');
  await remove.getByLabel('Type web to continue').fill('web');
  await remove.getByRole('button', { name: 'Delete the VM' }).click();
  await expect(page.getByRole('heading', { name: 'VMs', level: 1 })).toBeVisible();
  await expect(page.getByRole('link', { name: 'web-2' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'web', exact: true })).toHaveCount(0);
});

test('one sign-in opens the other console, from either side', async ({ page }) => {
  await signIn(page, m.hypervisor.url, m.hypervisor.token);
  await page.goto(m.hypervisor.url);
  await page.getByRole('button', { name: 'Switch to another service' }).click();
  await page.getByRole('link', { name: 'VM management' }).click();
  await expect(page.getByText('Need attention')).toBeVisible();
  await expect(page).toHaveURL(`${m.url}/`);
  await expect(page.getByText('admin, sees everything')).toBeVisible();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
});
