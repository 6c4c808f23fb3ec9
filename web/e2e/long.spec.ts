/** Lists of ten thousand rows. */
import { expect, open, shot, test } from './console';
import { caller, enroll } from './fixtures';
import { startServer } from './server';

test('a list of ten thousand devices opens, loads more, is selected and searched, and the page holds few of its rows', async ({ page }) => {
  test.setTimeout(300_000);
  const all = 10_000;
  const server = await startServer();
  try {
    const call = caller(server, server.credentials.admin_token);
    const { agent } = await enroll(call, server.credentials.enrollment_token, 'large');
    let next = 0;
    const register = async () => {
      for (let n = next++; n < all; n = next++) await call('POST', '/devices/register', { device_id: `d-${String(n).padStart(5, '0')}`, name: `Pump ${n}`, labels: { hall: `h${n % 7}` } }, agent);
    };
    await Promise.all(Array.from({ length: 32 }, register));
    const rows = page.getByRole('table', { name: 'Devices' }).locator('tbody tr');
    const few = async () => expect(await rows.count()).toBeLessThanOrEqual(600);

    // An address can ask for many parts at once.
    await open(page, '/devices?parts=20', 'admin', server.url, server.credentials.admin_token);
    await expect(page.getByText('200 of 2,000 loaded devices shown; there are more.')).toBeVisible({ timeout: 60_000 });
    await page.getByRole('button', { name: 'Show more' }).click();
    await expect(page.getByText('600 of 2,000 loaded devices shown; there are more.')).toBeVisible();
    await page.getByRole('button', { name: 'Load more' }).click();
    await expect(page.getByText('1,501 to 2,100 of 2,100 loaded devices shown; there are more.')).toBeVisible({ timeout: 60_000 });
    await few();
    await expect(page.getByRole('link', { name: 'd-02099' })).toBeVisible();
    await shot(page, 'long-end');
    await page.getByRole('button', { name: 'Show earlier' }).click();
    await expect(page.getByText('1,101 to 1,700 of 2,100 loaded devices shown; there are more.')).toBeVisible();
    await few();
    await page.getByRole('checkbox', { name: 'Select all devices that are shown' }).check();
    await expect(page.getByText('600 devices selected')).toBeVisible();
    await page.getByRole('checkbox', { name: 'Select d-01200' }).uncheck();
    await expect(page.getByText('599 devices selected')).toBeVisible();

    // A search is another list, which begins at its first part.
    await page.getByRole('searchbox', { name: 'Search all devices' }).fill('PUMP 987');
    await expect(page.getByText('11 devices loaded')).toBeVisible();
    await expect(page).toHaveURL(`${server.url}/devices?filter=PUMP+987`);
    await expect(rows).toHaveCount(11);
    await page.getByRole('searchbox', { name: 'Search all devices' }).fill('');
    await expect(page.getByText('200 of 2,100 loaded devices shown; there are more.')).toBeVisible();
    await few();
  } finally {
    await server.stop();
  }
});
