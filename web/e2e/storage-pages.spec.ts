/** Every page of the storage gateway's console: in both themes and widths, and what each caller sees. */
import type { Page } from '@playwright/test';
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { until } from './fixtures';
import { startStore, type Store } from './s3';
import { signIn } from './session';
import { open, startGateway, type Gateway } from './storage';

const narrow = 360;

let g: Gateway;
let store: Store;
let ids: { volume: string; backend: string; cluster: string; job: string; bucket: string; backup: string };

test.beforeAll(async () => {
  store = await startStore();
  g = await startGateway({ store });
  await g.call('PUT', '/tenants/acme', { description: 'A shop', quota: { volumes: 2, bytes: 2 ** 31 } });
  const { volume_id: volume } = await g.done<{ volume_id: string }>('POST', '/volumes', { name: 'data', size_bytes: 2 ** 30, tenant_id: 'acme', owner: { product: 'vm', resource_id: 'web' } });
  const { snapshot_id: snapshot } = await g.done<{ snapshot_id: string }>('POST', `/volumes/${volume}/snapshots`, { name: 'before' });
  await g.done('POST', `/snapshots/${snapshot}/clone`, { name: 'data-2' });
  await g.done('POST', '/volumes', { name: 'nobodys', size_bytes: 2 ** 20, policy: 'shared' });
  const [backend] = await g.call<{ id: string }[]>('GET', '/backends');
  const [cluster] = await g.call<{ id: string }[]>('GET', '/clusters');
  const { bucket_id: bucket } = await g.done<{ bucket_id: string }>('POST', '/buckets', { name: 'offsite', connection_ref: 'offsite' });
  const { backup_id: backup } = await g.done<{ backup_id: string }>('POST', '/backup-jobs', { volume_id: volume, bucket_id: bucket });
  const [job] = await g.call<{ id: string }[]>('GET', '/jobs?kind=snapshot.clone');
  ids = { volume, backend: backend?.id ?? '', cluster: cluster?.id ?? '', job: job?.id ?? '', bucket, backup };
  // A backend that does not answer, and a tenant at its limit: alerts.
  const { id: gone } = await g.call<{ id: string }>('POST', '/backends', { name: 'gone', backend_type: 'nfs', connection_ref: 'gone' });
  await g.call('POST', `/backends/${gone}/discover`).catch(() => undefined);
  await g.call('POST', '/alerts/evaluate');
  await until('alerts', () => g.call<unknown[]>('GET', '/alerts?state=open'), (a) => a.length === 3);
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (g as Gateway | undefined)?.stop();
  (store as Store | undefined)?.stop();
});

type Look = [name: string, path: () => string, expected: string | RegExp];

const pages: Record<string, Look[]> = {
  'the overview and volumes': [
    ['overview', () => '/', 'Capacity used'],
    ['volumes', () => '/volumes', 'nobodys'],
    ['volume', () => `/volumes/${ids.volume}`, 'Made of'],
    ['volume-snapshots', () => `/volumes/${ids.volume}#snapshots`, 'data-2'],
    ['volume-missing', () => '/volumes/nowhere', 'There is no such volume here'],
  ],
  'buckets and backups': [
    ['buckets', () => '/buckets', 'others'],
    ['bucket', () => `/buckets/${ids.bucket}`, 'Lifecycle rules'],
    ['backups', () => '/backups', 'no data'],
    ['backup', () => `/backups/${ids.backup}`, 'manifest: what the volume is'],
    ['restore-manifest', () => `/restore?backup=${ids.backup}`, 'This backup has no data.'],
  ],
  'backends, policies and alerts': [
    ['backends', () => '/backends', 'does not answer'],
    ['backend', () => `/backends/${ids.backend}`, 'Identity'],
    ['backend-pools', () => `/backends/${ids.backend}#pools`, 'default'],
    ['policies', () => '/policies', 'Volumes for files in a folder of this host'],
    ['alerts', () => '/alerts', 'A tenant has almost reached a limit'],
  ],
  'jobs and the organization': [
    ['jobs', () => '/jobs', 'Make the clone data-2'],
    ['job', () => `/jobs/${ids.job}`, 'Asked for by'],
    ['tenants', () => '/tenants', 'A shop'],
    ['audit', () => '/audit', 'tenant.put'],
    ['account', () => '/account', 'none: you see everything'],
  ],
};

for (const [title, looks] of Object.entries(pages)) {
  test(`${title} are whole in both themes and widths`, async ({ page }) => {
    await signIn(page, g.url, g.token('ada', 'admin'));
    for (const [name, path, expected] of looks) {
      // The address of a tab alone would not load the page anew.
      await page.goto('about:blank');
      await page.goto(g.url + path());
      await whole(page, name, expected);
    }
  });
}

/** The wide page is examined in light, the narrow one in dark. */
async function whole(page: Page, name: string, expected: string | RegExp): Promise<void> {
  for (const [width, colorScheme] of [[1280, 'light'], [narrow, 'dark']] as const) {
    await page.setViewportSize({ width, height: 860 });
    await page.emulateMedia({ colorScheme });
    await expect(page.getByRole('main').getByText(expected).filter({ visible: true }).first()).toBeVisible();
    await expect(page.locator('.skeleton')).toHaveCount(0);
    await expectNoSidewaysScroll(page);
    await expectAccessible(page);
    await shot(page, `storage-${name}-${colorScheme}-${width}`, true);
  }
}

test('who may only read sees no buttons to change anything, and only what is the tenant’s', async ({ page }) => {
  await open(page, g, '/volumes', g.token('vera', 'viewer', 'acme'));
  await expect(page.getByText('viewer of the tenant acme')).toBeVisible();
  await expect(page.getByRole('link', { name: 'data', exact: true })).toBeVisible();
  await expect(page.getByRole('link', { name: 'nobodys' })).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Create a volume' })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'Audit log' })).toHaveCount(0);
  await page.getByRole('link', { name: 'data', exact: true }).click();
  await page.getByRole('tab', { name: 'Snapshots' }).click();
  await expect(page.getByText('before', { exact: true })).toBeVisible();
  await expect(page.getByRole('button', { name: /^Actions for|^Take a snapshot/ })).toHaveCount(0);
  await page.goto(`${g.url}/audit`);
  await expect(page.getByText('There is no such page here')).toBeVisible();
  await page.goto(g.url);
  await expect(page.getByText('Quota of acme')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Pause jobs…' })).toHaveCount(0);
});

test('an alert is looked into, acknowledged and silenced; a backend is cordoned, and says so to who makes volumes', async ({ page }) => {
  await open(page, g, '/alerts?severity=critical');
  const row = page.getByRole('row').filter({ hasText: 'A tenant has almost reached a limit' }).first();
  await expect(row).toContainText('used: ');
  const menu = (await row.getByRole('button', { name: /^Actions for/ }).getAttribute('aria-label')) ?? '';
  await row.getByRole('button', { name: menu }).click();
  await page.getByRole('menuitem', { name: 'Acknowledge…' }).click();
  await (await dialog(page, 'storage-acknowledge', 'Acknowledge the alert?')).getByRole('button', { name: 'Acknowledge' }).click();
  await expect(row).toContainText('acknowledged by ada');
  await row.getByRole('button', { name: menu }).click();
  await page.getByRole('menuitem', { name: 'Silence…' }).click();
  const silence = await dialog(page, 'storage-silence', 'Silence the alert');
  await silence.getByLabel('For').selectOption('86400');
  await silence.getByLabel('Reason').fill('the quota is being changed');
  await silence.getByRole('button', { name: 'Silence', exact: true }).click();
  await expect(row).toContainText('silenced');

  await page.goto(`${g.url}/backends/${ids.backend}`);
  await page.getByRole('button', { name: 'Discover', exact: true }).click();
  await expect(page.getByText(/^local: \d+ volumes/)).toBeVisible();
  await choose(page, 'Actions for local', 'Cordon…');
  await (await dialog(page, 'storage-cordon', 'Cordon local?')).getByRole('button', { name: 'Cordon the backend' }).click();
  await expect(page.locator('.page-title .badge')).toHaveText('cordoned');
  await page.goto(`${g.url}/volumes?create=1`);
  const create = await dialog(page, 'storage-create-cordoned', 'Create a volume');
  await expect(create.getByText('The backend local is cordoned')).toBeVisible();
  await create.getByLabel('Name', { exact: true }).fill('late');
  await create.getByLabel('Size').fill('1 MiB');
  await create.getByRole('button', { name: 'Create the volume' }).click();
  await expect(create.getByRole('alert')).toContainText('cordoned');
  await g.call('POST', `/backends/${ids.backend}/uncordon`);
  await create.getByRole('button', { name: 'Create the volume' }).click();
  await expect(page.getByRole('heading', { name: 'late', level: 1 })).toBeVisible();
});

test('a schedule is made, paused, changed, enabled and deleted', async ({ page }) => {
  await open(page, g, `/volumes/${ids.volume}`);
  await page.getByRole('link', { name: 'what is done to it at regular times' }).click();
  await page.getByRole('button', { name: 'Create a schedule' }).first().click();
  const form = await dialog(page, 'storage-schedule', 'Create a schedule');
  await expect(form.getByLabel('Volume', { exact: true })).toHaveValue(ids.volume);
  await form.getByLabel('Name').fill('nightly');
  await form.getByLabel('What').selectOption('backup');
  await form.getByLabel('Every', { exact: true }).fill('1 min');
  await form.getByLabel('Key').fill('nobody');
  await form.getByLabel('First run').fill('2040-01-01T03:00:00');
  await form.getByRole('button', { name: 'Create the schedule' }).click();
  await expect(form.getByText('Must be at least 5 minutes.')).toBeVisible();
  await form.getByLabel('Every', { exact: true }).fill('1 day');
  await form.getByRole('button', { name: 'Create the schedule' }).click();
  await expect(form.getByText('The setting backup-keys has no entry nobody.')).toBeVisible();
  await form.getByLabel('Key').fill('');
  await form.getByRole('button', { name: 'Create the schedule' }).click();
  const row = page.getByRole('row').filter({ hasText: 'nightly' });
  await expect(row).toContainText('enabled');
  await whole(page, 'schedules', 'nightly');
  await choose(page, 'Actions for nightly', 'Pause…');
  await (await dialog(page, 'storage-schedule-pause', 'Pause nightly?')).getByRole('button', { name: 'Pause the schedule' }).click();
  await expect(row).toContainText('paused');
  await choose(page, 'Actions for nightly', 'Change…');
  const change = await dialog(page, 'storage-schedule-change', 'Change nightly');
  await expect(change.getByLabel('First run')).toHaveValue(/^2040-01-01T03:00/);
  await change.getByLabel('Keep').fill('7');
  await change.getByRole('button', { name: 'Save' }).click();
  await expect(row).toContainText('the newest 7');
  // What was not changed stays.
  await expect(row).toContainText('paused');
  await choose(page, 'Actions for nightly', 'Enable…');
  const enable = await dialog(page, 'storage-schedule-enable', 'Enable nightly?');
  await expect(enable.getByText('It runs at the next of its times')).toBeVisible();
  await enable.getByRole('button', { name: 'Enable the schedule' }).click();
  await expect(row).toContainText('enabled');
  await choose(page, 'Actions for nightly', 'Delete…');
  await (await dialog(page, 'storage-schedule-delete', 'Delete the schedule nightly?')).getByRole('button', { name: 'Delete the schedule' }).click();
  await expect(page.getByText('No schedule matches')).toBeVisible();
});

test('events follow by themselves, and are filtered in the address', async ({ page }) => {
  await open(page, g, '/events?type=audit');
  await expect(page.getByRole('cell', { name: 'volume.create' }).first()).toBeVisible();
  await expect(page.getByText('succeeded', { exact: true })).toHaveCount(0);
  await g.call('PUT', '/tenants/late', {});
  await expect(page.getByRole('row').filter({ hasText: 'tenant late' })).toBeVisible();
  await page.getByLabel('Type').selectOption('job');
  await page.getByLabel('About the ID').fill(ids.volume);
  await expect(page).toHaveURL(new RegExp(`type=job&resource=${ids.volume}`));
  await page.getByRole('table', { name: 'Events' }).getByRole('link', { name: 'job' }).first().click();
  await expect(page.getByText('Asked for by')).toBeVisible();
  await page.goto(`${g.url}/volumes/${ids.volume}#events`);
  await whole(page, 'volume-events', 'volume.create');
});

test('OSDs are a tree by host, and taking one out asks first', async ({ page }) => {
  // The gateway of this test has no Ceph: the answers of a cluster stand in for it.
  const osd = (id: number, host: string, more: object = {}) => ({ id, cluster_id: ids.cluster, host, up: true, in_cluster: true, device_class: 'ssd', used_bytes: 40 * 2 ** 30, capacity_bytes: 100 * 2 ** 30, weight: 1, ...more });
  const asked: string[] = [];
  await page.route('**/api/store/v1/osds?*', (route) => route.fulfill({ json: [osd(1, 'node-2'), osd(0, 'node-1'), osd(2, 'node-2', { up: false, in_cluster: false, weight: undefined, device_class: '' })] }));
  await page.route('**/api/store/v1/osds/*/*', (route) => {
    asked.push(`${route.request().method()} ${new URL(route.request().url()).pathname}${new URL(route.request().url()).search}`);
    return route.fulfill({ status: 202, json: { job_id: ids.job, state: 'queued', resource: { cluster_id: ids.cluster, osd_id: 1 }, links: { job: '', watch: '' } } });
  });
  await page.setViewportSize({ width: 1280, height: 860 });
  await open(page, g, `/backends/${ids.backend}#osds`);
  const second = page.getByRole('list', { name: 'OSDs on node-2' });
  await expect(second.getByRole('listitem')).toHaveText([/osd\.1.*up.*in.*40 GiB of 100 GiB.*ssd, weight 100 %/, /osd\.2.*down.*out.*class not known, weight not known/]);
  await expect(page.getByText('2 OSDs, 1 up, 1 in')).toBeVisible();
  await whole(page, 'osds', 'node-1');
  await choose(page, 'Actions for osd.1', 'Take out…');
  const out = await dialog(page, 'storage-osd-out', 'Take osd.1 out?');
  await expect(out.getByRole('button', { name: 'Take it out' })).toBeDisabled();
  await out.getByLabel('Type osd.1 to continue').fill('osd.1');
  await out.getByRole('button', { name: 'Take it out' }).click();
  await expect(page.getByText('Asked for by')).toBeVisible();
  await page.goBack();
  await choose(page, 'Actions for osd.0', 'Reweight…');
  const weight = await dialog(page, 'storage-osd-reweight', 'Reweight osd.0');
  await weight.getByLabel('Weight').fill('1.5');
  await weight.getByRole('button', { name: 'Reweight the OSD' }).click();
  await expect(weight.getByText('Must be at most 1.')).toBeVisible();
  await weight.getByLabel('Weight').fill('0.5');
  await weight.getByRole('button', { name: 'Reweight the OSD' }).click();
  await expect(page.getByText('Asked for by')).toBeVisible();
  expect(asked).toEqual([`POST /api/store/v1/osds/1/out?cluster=${ids.cluster}`, `POST /api/store/v1/osds/0/reweight?cluster=${ids.cluster}&weight=0.5`]);
});

test('a gateway that asks nobody for a token shows no sign-in', async ({ page }) => {
  const openly = await startGateway({ tokens: false });
  try {
    await page.goto(openly.url);
    await expect(page.getByText('No token needed')).toBeVisible();
    await expect(page.getByRole('button', { name: 'Sign out' })).toHaveCount(0);
    await page.getByRole('main').getByRole('link', { name: 'Create the first one' }).click();
    await expect(page.getByRole('heading', { name: 'Create a volume' })).toBeVisible();
  } finally {
    await openly.stop();
  }
});

test('images are a tree of snapshots and clones, and one is shrunk only by its name', async ({ page }) => {
  // The gateway of this test has no Ceph: the answers of a cluster stand in for it.
  const image = (name: string, more: object = {}) => ({ id: `id-${name}`, tenant_id: '', cluster_id: ids.cluster, pool: 'rbd', name, size_bytes: 2 ** 30, used_bytes: null, state: 'available', health: 'ok', parent: '', iops: 0, bps: 0, managed: true, created_at: '2026-01-02T03:04:05Z', ...more });
  const snapshot = (name: string, more: object = {}) => ({ id: `id-${name}`, name, size_bytes: 2 ** 30, protected: false, created_at: '2026-01-03T03:04:05Z', ...more });
  const pool = (name: string) => ({ id: name, cluster_id: ids.cluster, name, kind: 'rbd', device_class: 'ssd', replica_size: 3, used_bytes: 0, max_bytes: 2 ** 40, health: 'ok', missing: false });
  const asked: string[] = [];
  await page.route('**/api/store/v1/pools?*', (route) => route.fulfill({ json: [pool('rbd'), pool('fast')] }));
  await page.route(/\/rbd-images(\?|$)/, (route) => {
    if (route.request().method() === 'POST') return route.fulfill({ status: 409, json: { error: { code: 'CONFLICT', message: 'the pool has an image disk already', field: 'name' } } });
    return route.fulfill({ json: [image('disk', { used_bytes: 2 ** 28, iops: 500 }), image('disk-2', { parent: 'rbd/disk@before' }), image('theirs', { managed: false })] });
  });
  await page.route('**/api/store/v1/rbd-images/rbd/**', (route) => {
    const { pathname, search } = new URL(route.request().url());
    if (route.request().method() === 'GET') return route.fulfill({ json: [snapshot('before'), snapshot('theirs', { id: '', protected: true })] });
    asked.push(`${route.request().method()} ${pathname.replace('/api/store/v1/rbd-images/rbd', '')}${search.replace(ids.cluster, 'C')} ${route.request().postData() ?? ''}`.trim());
    return route.fulfill({ status: 202, json: { job_id: ids.job, state: 'queued', resource: { volume_id: 'id-disk', cluster_id: ids.cluster, pool: 'rbd', image: 'disk' }, links: { job: '', watch: '' } } });
  });
  await open(page, g, '/images');
  await whole(page, 'images', 'disk-2');
  await page.getByRole('button', { name: 'Create an image' }).first().click();
  const create = await dialog(page, 'storage-image', 'Create an image');
  await create.getByLabel('Name', { exact: true }).fill('disk');
  await create.getByLabel('Size').fill('1 GiB');
  await create.getByRole('button', { name: 'Create the image' }).click();
  await expect(create.getByText('The pool has an image disk already.')).toBeVisible();
  await expect(create.getByLabel('Name', { exact: true })).toBeFocused();

  await page.goto(`${g.url}/images/${ids.cluster}/rbd/disk#snapshots`);
  const tree = page.getByRole('group', { name: 'Snapshots of disk' });
  await expect(tree.getByRole('list', { name: 'Images made of before' }).getByRole('link')).toHaveText('disk-2');
  // What others made is only shown.
  await expect(tree.getByRole('button')).toHaveCount(1);
  await whole(page, 'image-snapshots', 'made by others');
  await choose(page, 'Actions for before', 'Roll back…');
  const back = await dialog(page, 'storage-image-rollback', 'Roll disk back to before?');
  await back.getByLabel('Type disk to continue').fill('disk');
  await back.getByRole('button', { name: 'Roll back' }).click();
  await expect(page.getByText('disk is being rolled back.')).toBeVisible();
  await choose(page, 'Actions for disk', 'Limit…');
  const limit = await dialog(page, 'storage-image-limit', 'Limit disk');
  await expect(limit.getByLabel('Requests per second')).toHaveValue('500');
  await limit.getByLabel('Requests per second').fill('');
  await limit.getByLabel('Bytes per second').fill('10 MiB');
  await limit.getByRole('button', { name: 'Limit the image' }).click();
  await choose(page, 'Actions for disk', 'Shrink…');
  const shrink = await dialog(page, 'storage-image-shrink', 'Shrink disk');
  await shrink.getByLabel('New size').fill('2 GiB');
  await shrink.getByLabel('Type disk to continue').fill('disc');
  await shrink.getByRole('button', { name: 'Shrink the image' }).click();
  await expect(shrink.getByText('Must be less than 1 GiB.')).toBeVisible();
  await expect(shrink.getByText('Type disk, the name of the image.')).toBeVisible();
  await shrink.getByLabel('New size').fill('512 MiB');
  await shrink.getByLabel('Type disk to continue').fill('disk');
  await shrink.getByRole('button', { name: 'Shrink the image' }).click();
  await choose(page, 'Actions for disk', 'Move…');
  const move = await dialog(page, 'storage-image-move', 'Move disk');
  await expect(move.getByLabel('Pool').getByRole('option')).toHaveText(['fast']);
  await move.getByRole('button', { name: 'Move the image' }).click();
  await expect(page.getByText('Asked for by')).toBeVisible();
  expect(asked).toEqual([
    'POST /disk/rollback?cluster=C {"snap":"before"}',
    'POST /disk/qos?cluster=C&iops=0&bps=10485760',
    'POST /disk/resize?cluster=C {"size_bytes":536870912,"allow_shrink":true}',
    'POST /disk/migrate?cluster=C&dest_pool=fast',
  ]);

  // An operator neither shrinks, moves nor deletes images.
  await page.context().clearCookies();
  await open(page, g, `/images/${ids.cluster}/rbd/disk`, g.token('olga', 'operator'));
  await page.getByRole('button', { name: 'Actions for disk', exact: true }).click();
  await expect(page.getByRole('menuitem')).toHaveText(['Take a snapshot…', 'Expand…', 'Limit…']);
});

test('volumes are grouped, their snapshot is taken at one moment, and all are rolled back to it', async ({ page }) => {
  // The gateway of this test has no Ceph: the answers of one stand in for it.
  const group = { id: 'g1', tenant_id: 'acme', name: 'db', cluster_id: ids.cluster, volume_ids: [ids.volume], created_at: '2026-01-02T03:04:05Z' };
  const snapshot = { id: 's1', group_id: 'g1', name: 'before', state: 'ready', consistency: 'crash', volume_ids: [ids.volume], last_error: '', created_at: '2026-01-03T03:04:05Z' };
  const accepted = { status: 202, json: { job_id: ids.job, state: 'queued', resource: { snapshot_id: 's1', group_id: 'g1', snap: 'before' }, links: { job: '', watch: '' } } };
  const asked: string[] = [];
  await page.route('**/api/store/v1/backends?*', async (route) => {
    const backends = (await (await route.fetch()).json()) as object[];
    await route.fulfill({ json: backends.map((b) => ({ ...b, backend_type: 'ceph' })) });
  });
  await page.route(/\/volume-groups(\/|\?|$)/, (route) => {
    const { pathname } = new URL(route.request().url());
    const path = pathname.replace('/api/store/v1/volume-groups', '');
    if (route.request().method() === 'GET') return route.fulfill({ json: path === '' ? [group] : path === '/g1' ? group : [snapshot] });
    asked.push(`${route.request().method()} ${path} ${route.request().postData() ?? ''}`.trim());
    if (path === '' && asked.length === 1) return route.fulfill({ status: 409, json: { error: { code: 'CONFLICT', message: 'the volume data is in the group db', field: 'volume_ids' } } });
    return route.fulfill(path === '' ? { status: 201, json: group } : accepted);
  });
  await open(page, g, '/groups?create=1');
  const create = await dialog(page, 'storage-group', 'Create a group');
  await create.getByRole('button', { name: 'Create the group' }).click();
  await expect(create.getByText('Fill this in.')).toHaveCount(2);
  await create.getByLabel('Name', { exact: true }).fill('db');
  await create.getByRole('checkbox', { name: 'data, 1 GiB, of acme' }).check();
  await create.getByRole('button', { name: 'Create the group' }).click();
  await expect(create.getByText('The volume data is in the group db.')).toBeVisible();
  await create.getByRole('button', { name: 'Create the group' }).click();
  await expect(page.getByText('Group of 1 volume, of the tenant acme')).toBeVisible();
  await page.getByRole('button', { name: 'Take a snapshot' }).click();
  const take = await dialog(page, 'storage-group-snapshot', 'Take a snapshot of db');
  await take.getByRole('button', { name: 'Take the snapshot' }).click();
  await expect(page.getByText('The snapshot of db is being taken.')).toBeVisible();
  await choose(page, 'Actions for before', 'Roll back…');
  const back = await dialog(page, 'storage-group-rollback', 'Roll db back to before?');
  await expect(back.getByText('data: all get the content')).toBeVisible();
  await back.getByLabel('Type db to continue').fill('db');
  await back.getByRole('button', { name: 'Roll back' }).click();
  await expect(page.getByText('db is being rolled back.')).toBeVisible();
  await choose(page, 'Actions for db', 'Dissolve…');
  await (await dialog(page, 'storage-group-dissolve', 'Dissolve db?')).getByRole('button', { name: 'Dissolve the group' }).click();
  await expect(page.getByText('db is dissolved.')).toBeVisible();
  const spec = JSON.stringify({ name: 'db', volume_ids: [ids.volume] });
  expect(asked).toEqual([`POST  ${spec}`, `POST  ${spec}`, 'POST /g1/snapshots {}', 'POST /g1/snapshots/s1/rollback {"confirm":true}', 'DELETE /g1']);
  await whole(page, 'group', 'of one moment');
  await page.goto(`${g.url}/groups`);
  await whole(page, 'groups', '1 volume: data');
});

test('a volume is mirrored, its copy is judged by both sites, and its work is moved there', async ({ page }) => {
  // Mirrors need two clusters: the answers of these stand in for them.
  const at = '2026-01-02T03:04:05Z';
  const peer = { id: 'p1', name: 'west', cluster_id: ids.cluster, remote_cluster_id: '', remote_fsid: '11111111-2222-3333-4444-555555555555', direction: 'rx-tx', secret_ref: 'west', state: 'reachable', last_error: '', created_at: at };
  const mirror = {
    id: 'm1', volume_id: ids.volume, tenant_id: 'acme', cluster_id: ids.cluster, pool: 'vms', image: 'disk', peer_id: 'p1', mode: 'snapshot', state: 'enabled', role: 'secondary',
    rpo_seconds: 900, lag_seconds: 7200, last_synced_at: at, last_error: '', created_at: at, last_rehearsal: { ok: true, detail: '4096 bytes of the copy were read', at, job_id: ids.job },
  };
  const status = {
    mirror_id: 'm1', role: 'secondary', health: 'warning', sites: [{ name: 'west', up: true, state: 'replaying', description: 'replaying, idle', updated_at: at }], lag_seconds: 7200, last_synced_at: at,
    promote_ready: false, promote_blocker: 'the volume is primary at the other site; demote it there first', journal_peers_replayed: null,
  };
  const preflight = {
    ready: false, checks: [], blockers: ['mirror m1: the copy is 2h0m0s old, and may be 15m0s'],
    steps: [{ mirror_id: 'm1', title: 'Stop the clients of the volume at the other site', detail: 'A demotion is refused while clients have it open.', command: '' }, { mirror_id: 'm1', title: 'Fail over', detail: 'The gateway demotes the volume there.', command: 'mainstay storage dr failover --yes m1' }],
  };
  const accepted = { status: 202, json: { job_id: ids.job, state: 'queued', resource: { mirror_id: 'm1', volume_id: ids.volume, cluster_id: ids.cluster }, links: { job: '', watch: '' } } };
  const asked: string[] = [];
  await page.route(/\/api\/store\/v1\/dr\//, (route) => {
    const path = new URL(route.request().url()).pathname.replace('/api/store/v1/dr', '');
    if (route.request().method() === 'GET') {
      const answers: Record<string, unknown> = { '/mirrors': [mirror], '/peers': [peer], '/preflight': preflight, '/mirrors/m1/status': status };
      return route.fulfill({ json: answers[path] });
    }
    asked.push(`${route.request().method()} ${path} ${route.request().postData() ?? ''}`.trim());
    if (path === '/failover' && asked.length === 1) return route.fulfill({ status: 409, json: { error: { code: 'CONFLICT', message: 'at the other site, the volume is in use by client.4' } } });
    return route.fulfill(path.endsWith('/rpo') ? { json: mirror } : accepted);
  });
  await open(page, g, '/mirrors');
  await expect(page.getByText('Something stands in the way of a failover:')).toBeVisible();
  await expect(page.getByText('the copy is 2h0m0s old')).toBeVisible();
  await whole(page, 'mirrors', 'vms/disk');
  await page.goto(`${g.url}/mirrors/m1`);
  await expect(page.getByText('It cannot be promoted here now: the volume is primary at the other site')).toBeVisible();
  await whole(page, 'mirror', 'mainstay storage dr failover --yes m1');
  await choose(page, 'Actions for disk', 'Fail over to here…');
  const over = await dialog(page, 'storage-failover', 'Fail over to local?');
  await over.getByRole('button', { name: 'Fail over' }).click();
  await expect(over.getByText('the volume is in use by client.4')).toBeVisible();
  await over.getByRole('button', { name: 'Fail over' }).click();
  await expect(page.getByText('The failover of disk has begun.')).toBeVisible();
  await choose(page, 'Actions for disk', 'Limit its age…');
  const age = await dialog(page, 'storage-rpo', 'How old the copy of disk may be');
  await age.getByLabel('Age', { exact: true }).fill('5 minutes');
  await age.getByRole('button', { name: 'Limit its age' }).click();
  await expect(page.getByText('The copy of disk may be 5 minutes old.')).toBeVisible();
  await choose(page, 'Actions for disk', 'Fail over by force…');
  const force = await dialog(page, 'storage-failover-force', 'Fail over to local by force?');
  await force.getByLabel('Type disk to continue').fill('disk');
  await force.getByRole('button', { name: 'Fail over by force' }).click();
  await expect(page.getByText('The failover of disk by force has begun.')).toBeVisible();
  const failover = (forced: boolean) => `POST /failover ${JSON.stringify({ mirror_id: 'm1', confirm: true, force: forced, peer_replayed: false })}`;
  expect(asked).toEqual([failover(false), failover(false), 'POST /mirrors/m1/rpo {"rpo_seconds":300}', failover(true)]);
});
