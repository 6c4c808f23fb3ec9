/** Backups in a bucket of another service: made from a volume's page, verified, restored step by step, and left by their volume. */
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { startStore, type Store } from './s3';
import { open, startGateway, type Gateway } from './storage';

let g: Gateway;
let store: Store;

test.beforeAll(async () => {
  store = await startStore();
  g = await startGateway({ store });
  await g.done('POST', '/buckets', { name: 'offsite', connection_ref: 'offsite' });
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (g as Gateway | undefined)?.stop();
  (store as Store | undefined)?.stop();
});

const badge = '.page-title .badge';

test('a volume is backed up, the backup verified and restored by the wizard, and deleted', async ({ page }) => {
  const { volume_id: volume } = await g.done<{ volume_id: string }>('POST', '/volumes', { name: 'data', size_bytes: 2 ** 20 });
  await page.setViewportSize({ width: 1280, height: 900 });
  await open(page, g, `/volumes/${volume}#backups`);
  await expect(page.getByText('It outlives the volume.')).toBeVisible();
  await page.getByRole('button', { name: 'Back up', exact: true }).click();
  const make = await dialog(page, 'storage-backup', 'Back up data');
  await make.getByLabel('Expires after').fill('30');
  await make.getByLabel('Key').fill('nobody');
  await make.getByRole('button', { name: 'Back up the volume' }).click();
  await expect(make.getByText('Write a number with its unit')).toBeVisible();
  await make.getByLabel('Expires after').fill('30 days');
  await make.getByRole('button', { name: 'Back up the volume' }).click();
  // The service's own refusal stands at its field, too.
  await expect(make.getByText('The setting backup-keys has no entry nobody.')).toBeVisible();
  await expect(make.getByLabel('Key')).toHaveAttribute('aria-invalid', 'true');
  await make.getByLabel('Key').fill('');
  await make.getByRole('button', { name: 'Back up the volume' }).click();
  await expect(page.getByRole('heading', { name: 'Backup of data', level: 1 })).toBeVisible();
  await expect(page.locator(badge)).toHaveText('completed');
  await expect(page.getByText('the storage cannot tell what has changed')).toBeVisible();

  await choose(page, 'Actions for the backup of data', 'Verify…');
  const verify = await dialog(page, 'storage-verify', 'Verify the backup of data');
  await verify.getByRole('button', { name: 'Verify the backup' }).click();
  await expect(page.getByText('verified', { exact: true })).toBeVisible();
  await expectAccessible(page);

  // The wizard. What is refused at the end is said at its field, and can be corrected there.
  await page.getByRole('link', { name: 'Restore…' }).click();
  const steps = page.getByRole('list', { name: 'Steps of the restore' });
  await expect(steps.locator('[aria-current=step]')).toContainText('New volume');
  await page.getByLabel('Name').fill('data');
  await page.getByLabel('Size').fill('1 KiB');
  await page.getByRole('button', { name: 'Review' }).click();
  await expect(page.getByText('Must be at least 1 MiB.')).toBeVisible();
  await page.getByLabel('Size').fill('2 MiB');
  await page.getByRole('button', { name: 'Review' }).click();
  await expect(steps.locator('[aria-current=step]')).toContainText('Review');
  await expect(page.getByRole('heading', { level: 1 })).toBeFocused();
  await expectAccessible(page);
  await shot(page, 'storage-restore-review', true);
  await page.getByRole('button', { name: 'Restore to a new volume' }).click();
  await expect(page.getByText('There is a volume of this name already.')).toBeVisible();
  await expect(page.getByLabel('Name')).toBeFocused();
  await expect(page.getByLabel('Size')).toHaveValue('2 MiB');
  await page.getByLabel('Name').fill('data-again');
  await page.getByRole('button', { name: 'Review' }).click();
  await page.getByRole('button', { name: 'Restore to a new volume' }).click();
  await expect(page.getByText('data-again is ready.')).toBeVisible();
  // A reload shows the same.
  await page.reload();
  await page.getByRole('link', { name: 'Open data-again' }).click();
  await expect(page.getByText('Block volume of 2 MiB')).toBeVisible();

  await page.goto(`${g.url}/backups`);
  await page.getByRole('row').filter({ hasText: 'completed' }).getByRole('button', { name: /^Actions for data/ }).click();
  await page.getByRole('menuitem', { name: 'Delete…' }).click();
  const remove = await dialog(page, 'storage-backup-delete', 'Delete the backup of data?');
  await expect(remove.getByRole('button', { name: 'Delete the backup' })).toBeDisabled();
  await remove.getByLabel('Type data to continue').fill('data');
  await remove.getByRole('button', { name: 'Delete the backup' }).click();
  await expect(page.getByText('There are no backups')).toBeVisible();
});

test('a gateway that lost its database imports the backups of volumes that are gone, on a narrow screen', async ({ page }) => {
  const { volume_id: volume } = await g.done<{ volume_id: string }>('POST', '/volumes', { name: 'lost', size_bytes: 2 ** 20 });
  const [bucket] = await g.call<{ id: string }[]>('GET', '/buckets');
  await g.done('POST', '/backup-jobs', { volume_id: volume, bucket_id: bucket?.id, mode: 'data' });
  await g.done('DELETE', `/volumes/${volume}`);
  const fresh = await startGateway({ store });
  try {
    await fresh.done('POST', '/buckets', { name: 'offsite', connection_ref: 'offsite' });
    await page.setViewportSize({ width: 360, height: 800 });
    await open(page, fresh, '/backups?of=gone');
    await page.getByRole('button', { name: 'Import from a bucket…' }).click();
    const take = await dialog(page, 'storage-import', 'Import from a bucket');
    await take.getByLabel('Tenant').fill('nobody');
    await take.getByRole('button', { name: 'Import the backups' }).click();
    await expect(take.getByLabel('Tenant')).toHaveAttribute('aria-invalid', 'true');
    await take.getByLabel('Tenant').fill('');
    await take.getByRole('button', { name: 'Import the backups' }).click();
    await expect(page.locator(badge)).toHaveText('succeeded');
    await page.goto(`${fresh.url}/backups?of=gone`);
    const row = page.getByRole('row').filter({ hasText: 'lost' });
    await expect(row).toContainText('completed');
    await expectNoSidewaysScroll(page);
    await expectAccessible(page);
    await page.goto(`${fresh.url}/restore`);
    await page.getByRole('link', { name: 'lost' }).click();
    await expect(page.getByLabel('Policy')).toContainText('the one called default');
    await expectNoSidewaysScroll(page);
    await expectAccessible(page);
  } finally {
    await fresh.stop();
  }
});

test('who may only read sees backups and cannot restore them', async ({ page }) => {
  await open(page, g, '/backups', g.token('vera', 'viewer'));
  await expect(page.getByRole('link', { name: 'lost' })).toBeVisible();
  await expect(page.getByRole('button', { name: /^Actions for|^Import/ })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'Restore a backup' })).toHaveCount(0);
  await page.goto(`${g.url}/restore`);
  await expect(page.getByText('There is no such page here')).toBeVisible();
});

test('a bucket is taken in, shows what it holds or that nobody knows, and is forgotten with its backups', async ({ page }) => {
  await open(page, g, '/buckets');
  await page.getByRole('button', { name: 'Create a bucket' }).click();
  const create = await dialog(page, 'storage-bucket', 'Create a bucket');
  await create.getByLabel('Name', { exact: true }).fill('logs');
  await create.getByLabel('Size at most').fill('10');
  await create.getByRole('button', { name: 'Create the bucket' }).click();
  await expect(create.getByText('Write a number with its unit')).toBeVisible();
  await create.getByLabel('Size at most').fill('10 GiB');
  await create.getByRole('button', { name: 'Create the bucket' }).click();
  // This gateway has no Ceph.
  await expect(create.getByText('No backend has buckets.')).toBeVisible();
  await page.goto(`${g.url}/buckets?create=known`);
  const take = await dialog(page, 'storage-bucket-take', 'Take in a bucket');
  await take.getByLabel('Entry').fill('offsite');
  await take.getByLabel('Name', { exact: true }).fill('twice');
  await take.getByRole('button', { name: 'Take in the bucket' }).click();
  await expect(take.getByText('The bucket of the entry offsite was taken in already.')).toBeVisible();

  await page.setViewportSize({ width: 360, height: 800 });
  await page.goto(`${g.url}/buckets`);
  await expectAccessible(page);
  await page.getByRole('link', { name: 'offsite', exact: true }).click();
  await expect(page.locator(badge)).toHaveText('bound');
  await expect(page.getByText(/B, no limit$/)).toBeVisible();
  await expect(page.getByText('never shown here')).toBeVisible();
  await expect(page.getByRole('main')).not.toContainText('secret-of-the-tests');
  await expectNoSidewaysScroll(page);
  await expectAccessible(page);
  await page.getByRole('tab', { name: 'Objects' }).click();
  await page.getByRole('link', { name: 'mainstay/', exact: true }).click();
  await expect(page).toHaveURL(/prefix=mainstay%2F#objects$/);
  await expect(page.getByRole('link', { name: 'mainstay/', exact: true })).toHaveCount(0);
  await page.getByRole('link', { name: 'Folder above' }).click();
  await expect(page.getByRole('link', { name: 'mainstay/', exact: true })).toBeVisible();
  await expectNoSidewaysScroll(page);
  await expectAccessible(page);
  await page.getByRole('tab', { name: 'Overview' }).click();
  store.stop();
  await page.reload();
  await expect(page.getByText('What it holds is not known:')).toBeVisible();
  await expect(page.getByText('Lifecycle rules')).toHaveCount(0);
  await expectAccessible(page);
  await shot(page, 'storage-bucket-silent-360', true);
  await choose(page, 'Actions for offsite', 'Forget…');
  const forget = await dialog(page, 'storage-bucket-forget', 'Forget offsite?');
  await expect(forget.getByText('It has 1 backup.')).toBeVisible();
  await forget.getByLabel('Type offsite to continue').fill('offsite');
  await forget.getByRole('button', { name: 'Forget the bucket' }).click();
  await expect(page.getByText('There is no such bucket here')).toBeVisible();
});
