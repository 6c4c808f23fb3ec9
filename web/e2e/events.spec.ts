/** Events, routes, dead letters. */
import { api, choose, dialog, expect, open, test, world } from './console';

test('events are followed, narrowed to a topic, paused, and opened', async ({ page }) => {
  await open(page, '/events');
  await page.getByRole('searchbox').fill('temp.tail*');
  await expect(page.getByText('No event matches')).toBeVisible();
  const site = world.fixtures.sites['plant-1']?.id;
  await api('POST', '/events', { site_id: site, topic: 'temp.tail1', payload: { celsius: 21.5 } });
  const row = page.getByRole('button', { name: 'temp.tail1' });
  await expect(row).toBeVisible();
  await row.click();
  const opened = await dialog(page, 'event');
  await expect(opened).toContainText('celsius');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Pause' }).click();
  await expect(page.getByText('1 event loaded, paused')).toBeVisible();
  await api('POST', '/events', { site_id: site, topic: 'temp.tail2', payload: {} });
  await page.getByRole('button', { name: 'Follow again' }).click();
  await expect(page.getByRole('button', { name: 'temp.tail2' })).toBeVisible();
});

test('a route is made with its secret shown once, tested, changed, disabled and deleted', async ({ page }) => {
  await open(page, '/routes');
  await page.getByRole('button', { name: 'Create a route' }).click();
  const form = await dialog(page, 'route');
  await form.getByLabel('Name', { exact: true }).fill('Night shift');
  await form.getByLabel('Topic').fill('night.*');
  await form.getByLabel('Target').fill('not an address');
  await form.getByRole('button', { name: 'Create the route' }).click();
  await expect(form.getByLabel('Target')).toHaveAttribute('aria-invalid', 'true');
  await form.getByLabel('Target').fill(`${world.sink}/ok`);
  await form.getByRole('button', { name: 'Create the route' }).click();
  const secret = await dialog(page, 'route-secret', 'Route Night shift is made');
  await expect(secret.getByRole('group', { name: 'Signing secret' })).toContainText('whsec_');
  await secret.getByRole('button', { name: 'I have copied it' }).click();
  await expect(page.getByRole('heading', { name: 'Night shift', level: 1 })).toBeVisible();

  await page.getByRole('button', { name: 'Send a test' }).click();
  const test_ = await dialog(page, 'route-test');
  await test_.getByRole('button', { name: 'Send' }).click();
  await expect(test_.getByText('The target took it.')).toBeVisible();
  await expect(test_).toContainText('HTTP 200');
  await dialog(page, 'route-tested');
  await test_.getByRole('button', { name: 'Close' }).last().click();

  await choose(page, 'Actions for Night shift', 'Edit');
  const edit = await dialog(page, 'route-edit');
  await edit.getByText('More settings').click();
  await edit.getByLabel('Retries').fill('21');
  await edit.getByRole('button', { name: 'Save' }).click();
  await expect(edit.getByText('Must be at most 20.')).toBeVisible();
  await edit.getByLabel('Retries').fill('7');
  await edit.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('7 after the first attempt')).toBeVisible();

  await choose(page, 'Actions for Night shift', 'Disable');
  await (await dialog(page, 'route-disable')).getByRole('button', { name: 'Disable the route' }).click();
  await expect(page.locator('.page-title')).toContainText('disabled');
  await choose(page, 'Actions for Night shift', 'Enable');
  await expect(page.locator('.page-title')).toContainText('nothing sent yet');
  await choose(page, 'Actions for Night shift', 'Delete');
  await (await dialog(page, 'route-delete')).getByRole('button', { name: 'Delete the route' }).click();
  await expect(page).toHaveURL('/routes');
  await expect(page.getByRole('table', { name: 'Routes' }).getByText('Night shift')).toHaveCount(0);
});

test('a dead letter is inspected, replayed and deleted; many are replayed at once', async ({ page }) => {
  const route = await api<{ id: string }>('POST', '/routes', { name: 'Gates', topic: 'gate.*', target_url: `${world.sink}/refuse` });
  for (let n = 0; n < 6; n++) await api('POST', '/events', { site_id: world.fixtures.sites['plant-2']?.id, topic: 'gate.opened', payload: { badge: n } });
  const letters = () => api<{ replay_count: number; status: string }[]>('GET', `/deadletters?route_id=${route.id}`);
  await expect.poll(async () => (await letters()).length).toBe(6);
  await open(page, `/routes/${route.id}`);
  await page.getByRole('link', { name: /Dead letters 6/ }).click();
  await expect(page.getByRole('combobox', { name: 'Route' })).toHaveValue(route.id);
  const table = page.getByRole('table', { name: 'Dead letters' });
  await expect(table.getByRole('row')).toHaveCount(7);
  await table.getByRole('button', { name: 'gate.opened' }).first().click();
  const letter = await dialog(page, 'deadletter');
  await expect(letter).toContainText('refused by the target');
  await expect(letter).toContainText('badge');
  await page.keyboard.press('Escape');

  const more = table.getByRole('button', { name: 'Actions for gate.opened' });
  await more.first().click();
  await page.getByRole('menuitem', { name: 'Replay' }).click();
  await (await dialog(page, 'deadletter-replay')).getByRole('button', { name: 'Replay it' }).click();
  await expect(page.getByText('The event is on its way again.')).toBeVisible();
  // The target refuses it again.
  await expect.poll(async () => (await letters()).filter((d) => d.replay_count === 1 && d.status === 'dead').length).toBe(1);
  await expect(table.getByText('replaying')).toHaveCount(0);

  await more.last().click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await (await dialog(page, 'deadletter-delete')).getByRole('button', { name: 'Delete the dead letter' }).click();
  await expect(table.getByRole('row')).toHaveCount(6);

  await api('PATCH', `/routes/${route.id}`, { target_url: `${world.sink}/ok` });
  await page.getByRole('button', { name: 'Replay many' }).click();
  const form = await dialog(page, 'deadletter-replay-many');
  await expect(form.getByRole('combobox', { name: 'Route' })).toHaveValue(route.id);
  await form.getByRole('button', { name: 'Replay', exact: true }).click();
  await expect(page.getByText('Replay of 5 dead letters of Gates: since then the route has delivered 5 events, and nothing waits now.')).toBeVisible();
  await expect(page.getByText('No dead letter matches')).toBeVisible();
  await expect.poll(letters).toEqual([]);
});
