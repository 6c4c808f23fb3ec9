/** Lists that the server searches, sorts and filters. */
import { api, expect, expectAccessible, expectNoSidewaysScroll, open, shot, test, world } from './console';
import { until } from './fixtures';

/** How many rows of a list there are, as the API has them. */
const howMany = async (path: string) => (await api<unknown[]>('GET', `${path}${path.includes('?') ? '&' : '?'}limit=1000`)).length;

const lists = [
  { path: '/routes', label: 'Routes', plural: 'routes', placeholder: 'Name, topic, target or ID', search: 'DOOR.', found: 'Door alarms', others: 'Temperatures to the historian', sort: 'Name' },
  { path: '/deployments', label: 'Deployments', plural: 'deployments', placeholder: 'Name, image, version, site or ID', search: 'ACME/Vision', found: 'vision', others: 'logger', sort: 'Name' },
  { path: '/campaigns', label: 'Campaigns', plural: 'campaigns', placeholder: 'Name, version, artifact or ID', search: 'SCANNERS', found: 'Depot scanners', others: 'Spring release', sort: 'Created' },
  { path: '/devices', label: 'Devices', plural: 'devices', placeholder: 'ID, name, model or label', search: 'PRESS 2', found: 'press-2', others: 'press-3', sort: 'Last seen' },
];

for (const list of lists) {
  test(`${list.plural} are searched and sorted by the server, and the address keeps how`, async ({ page }) => {
    await open(page, list.path);
    const table = page.getByRole('table', { name: list.label });
    await expect(table.getByText(list.others, { exact: true })).toBeVisible();
    const search = page.getByRole('searchbox', { name: `Search all ${list.plural}` });
    await expect(search).toHaveAttribute('placeholder', list.placeholder);
    const asked = page.waitForRequest((r) => new URL(r.url()).searchParams.get('q') === list.search);
    await search.fill(list.search);
    await asked;
    await expect(table.getByText(list.found, { exact: true })).toBeVisible();
    await expect(table.getByText(list.others, { exact: true })).toHaveCount(0);
    const sorted = page.waitForRequest((r) => new URL(r.url()).searchParams.has('sort'));
    await table.getByRole('button', { name: list.sort, exact: true }).click();
    await sorted;
    await page.reload();
    await expect(search).toHaveValue(list.search);
    await expect(table.getByRole('columnheader', { name: list.sort })).toHaveAttribute('aria-sort', 'ascending');
    await expect(table.getByText(list.found, { exact: true })).toBeVisible();
    await expect(table.getByText(list.others, { exact: true })).toHaveCount(0);
    await search.fill('');
    await expect(table.getByText(list.others, { exact: true })).toBeVisible();
    await expectAccessible(page);
    for (const [name, width, height] of [['wide', 1440, 900], ['narrow', 390, 844]] as const) {
      await page.setViewportSize({ width, height });
      await expectNoSidewaysScroll(page);
      await shot(page, `list-${list.plural}-${name}`);
    }
  });
}

test('the tiles of the overview lead to lists of exactly what they count', async ({ page }) => {
  // A route counts as failing while an alert fires for it, as after three failed attempts.
  const { id } = await api<{ id: string }>('POST', '/routes', { name: 'Refused', topic: 'refused.*', target_url: `${world.sink}/refuse`, retry_max: 1 });
  const plant = world.fixtures.sites['plant-2'];
  for (let n = 0; n < 3; n++) await api('POST', '/events', { site_id: plant?.id, topic: 'refused.door', payload: n });
  type Counts = Record<string, number>;
  interface Overview {
    ota: Counts;
    deployments: Counts;
    campaigns: Counts;
    routes_failing: number;
  }
  const overview = () => api<Overview & Record<string, unknown>>('GET', '/overview');
  await until('the alert', () => api<{ id: string }[]>('GET', '/routes?status=failing'), (routes) => routes.some((r) => r.id === id));

  const follow = async (tile: RegExp, url: string) => {
    await open(page, '/');
    await page.locator('a.tile', { hasText: tile }).click();
    await expect(page).toHaveURL(url);
  };
  const counted = (n: number, noun: string) => expect(page.getByText(new RegExp(`^${n} ${noun}s? loaded`))).toBeVisible();
  const sum = (counts: Counts, ...states: string[]) => states.reduce((n, s) => n + (counts[s] ?? 0), 0);
  await follow(/^Deployments up/, '/deployments?status=failed,denied,unknown');
  const { deployments, ota, campaigns, routes_failing } = await overview();
  await counted(sum(deployments, 'failed', 'denied', 'unknown'), 'deployment');
  await expect(page.getByRole('combobox', { name: 'Status' })).toHaveValue('failed,denied,unknown');
  const table = page.getByRole('table', { name: 'Deployments' });
  await expect(table.getByText('vision', { exact: true })).toBeVisible();
  await expect(table.getByText('logger', { exact: true })).toBeVisible();
  await page.getByRole('combobox', { name: 'Status' }).selectOption('unknown');
  await counted(sum(deployments, 'unknown'), 'deployment');
  await expect(table.getByText('vision', { exact: true })).toHaveCount(0);

  const failed = ['failed', 'rejected', 'canceled', 'timed_out', 'rolled_back'];
  await follow(/^Devices/, `/devices?update=${failed.join()}`);
  await counted(sum(ota, ...failed), 'device');
  expect(sum(ota, ...failed)).toBe(await howMany(`/devices?${failed.map((s) => `ota_state=${s}`).join('&')}`));

  await follow(/^Campaigns running/, '/campaigns?status=paused');
  await counted(sum(campaigns, 'paused'), 'campaign');
  await expect(page.getByRole('table', { name: 'Campaigns' }).getByText('Spring release')).toBeVisible();

  await follow(/^Deliveries pending/, '/routes?status=failing');
  await counted(routes_failing, 'route');
  await expect(page.getByRole('table', { name: 'Routes' }).getByText('Refused', { exact: true })).toBeVisible();
  await shot(page, 'routes-failing');
  await expect(page.getByRole('table', { name: 'Routes' }).getByText('Temperatures to the historian')).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Status' }).selectOption('disabled');
  await expect(page.getByRole('table', { name: 'Routes' }).getByText('Refused', { exact: true })).toHaveCount(0);
  await api('DELETE', `/routes/${id}`);
});

test('the palette finds routes, deployments and campaigns on the server', async ({ page }) => {
  await open(page, '/sites');
  await page.keyboard.press('Control+k');
  const palette = page.getByRole('dialog', { name: 'Go to' });
  for (const [text, option] of [['/refuse', /Door alarms.*route/], ['acme/vision', /vision.*deployment/], ['SCANNERS', /Depot scanners.*campaign/]] as const) {
    const asked = page.waitForRequest((r) => new URL(r.url()).searchParams.get('q') === text && new URL(r.url()).searchParams.get('limit') === '6');
    await palette.getByRole('combobox').fill(text);
    await asked;
    await expect(palette.getByRole('option', { name: option })).toBeVisible();
  }
  await palette.getByRole('option', { name: /Depot scanners/ }).click();
  await expect(page.getByRole('heading', { name: 'Depot scanners', level: 1 })).toBeVisible();
});
