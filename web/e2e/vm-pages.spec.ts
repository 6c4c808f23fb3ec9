/** Every page of VM management's console: in both themes and widths, and by the keyboard. */
import { expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
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
  await m.call('POST', '/api/vms/spare/snapshots', { name: 'fresh' });
  await m.call('POST', '/api/vms/spare/snapshots', { name: 'tried', description: 'Before the change' });
  await m.call('POST', '/api/backups', { vm_name: 'web', description: 'The first one' });
  await m.call('POST', '/api/backups/policies', { name: 'nightly', vm_tags: ['prod'], schedule_type: 'daily', time: '02:00', timezone: 'Europe/Berlin', keep_daily: 7 });
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
  ['vm', '/vms/web?tenant=acme', 'Usage since this page was opened'],
  ['vm-snapshots', '/vms/spare#snapshots', 'the disk stands on it'],
  ['vm-backups', '/vms/web#backups', /completed|running/],
  ['vm-network', '/vms/web#network', 'In: what comes to it'],
  ['vm-console', '/vms/web#console', 'Not here yet'],
  ['vm-events', '/vms/web#events', 'created'],
  ['vm-missing', '/vms/nowhere', 'There is no such VM here'],
  ['backups', '/backups', 'web'],
  ['backup-policies', '/backups#policies', 'Every day at 02:00, Europe/Berlin'],
  ['jobs', '/jobs', 'Make web'],
  ['tenants', '/tenants', 'A shop'],
  ['users', '/users', 'ulla'],
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
