/** What one does with the storage gateway in the first minutes, in the browser alone. */
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { open, startGateway, type Gateway } from './storage';

let g: Gateway;

test.beforeAll(async () => {
  g = await startGateway();
});
test.afterAll(async () => {
  // What was not started needs no end.
  await (g as Gateway | undefined)?.stop();
});

const volumes = () => g.call<{ name: string; state: string; size_bytes: number }[]>('GET', '/volumes');

test('a newcomer creates a volume, takes a snapshot, clones it, expands and deletes', async ({ page }) => {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto(g.url);
  await page.getByLabel('Token', { exact: true }).fill('not.a.token');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('alert')).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'storage-signin');
  await page.getByLabel('Token', { exact: true }).fill(g.token('ada', 'admin'));
  await page.keyboard.press('Enter');
  await expect(page.getByText('admin, sees everything')).toBeVisible();

  // Create it: errors stand at their fields, of the browser's own and of the service's.
  await page.getByRole('main').getByRole('link', { name: 'Create the first one' }).click();
  const create = await dialog(page, 'storage-create', 'Create a volume');
  await create.getByLabel('Name', { exact: true }).fill('Not A Name');
  await create.getByLabel('Size').fill('12');
  await create.getByRole('button', { name: 'Create the volume' }).click();
  await expect(create.getByText('Write a number with its unit')).toBeVisible();
  await expect(create.getByLabel('Name', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await create.getByLabel('Name', { exact: true }).fill('data');
  await create.getByLabel('Size').fill('1 GiB');
  await create.getByRole('button', { name: 'Create the volume' }).click();
  await expect(page.getByRole('heading', { name: 'data', level: 1 })).toBeVisible();
  const badge = page.locator('.page-title .badge');
  await expect(badge).toHaveText('available');
  await expect(page.getByText('Block volume of 1 GiB')).toBeVisible();

  // A snapshot, and a larger volume of it, which is shown below it.
  await page.getByRole('tab', { name: 'Snapshots' }).click();
  await page.getByRole('button', { name: 'Take a snapshot' }).click();
  const snapshot = await dialog(page, 'storage-snapshot', 'Take a snapshot of data');
  await snapshot.getByLabel('Name').fill('before');
  await snapshot.getByRole('button', { name: 'Take the snapshot' }).click();
  const tree = page.getByRole('group', { name: 'Snapshots of data' });
  await expect(tree.getByText('before', { exact: true })).toBeVisible();
  await expect(tree.getByText('ready')).toBeVisible();
  await choose(page, 'Actions for before', 'Clone…');
  const clone = await dialog(page, 'storage-clone', 'Clone before');
  await clone.getByLabel('Name of the new volume').fill('data');
  await clone.getByRole('button', { name: 'Clone the snapshot' }).click();
  // The name is taken: the service says so, and what was typed stays.
  await expect(clone.getByText('There is a volume of this name already.')).toBeVisible();
  await expect(clone.getByLabel('Name of the new volume')).toHaveAttribute('aria-invalid', 'true');
  await clone.getByLabel('Name of the new volume').fill('data-2');
  await clone.getByLabel('Size').fill('2 GiB');
  await clone.getByRole('button', { name: 'Clone the snapshot' }).click();
  await expect(page.getByRole('heading', { name: 'data-2', level: 1 })).toBeVisible();
  await expect(badge).toHaveText('available');
  await page.getByRole('link', { name: 'data', exact: true }).click();
  const made = tree.getByRole('list', { name: 'Volumes made of before' });
  await expect(made.getByRole('link', { name: 'data-2' })).toBeVisible();
  await expectAccessible(page);
  await shot(page, 'storage-tree', true);

  // Expanded: not to less than it has.
  await choose(page, 'Actions for data', 'Expand…');
  const expand = await dialog(page, 'storage-expand', 'Expand data');
  await expand.getByLabel('New size').fill('512 MiB');
  await expand.getByRole('button', { name: 'Expand the volume' }).click();
  await expect(expand.getByLabel('New size')).toHaveAttribute('aria-invalid', 'true');
  await expand.getByLabel('New size').fill('3 GiB');
  await expand.getByRole('button', { name: 'Expand the volume' }).click();
  await expect(page.getByText('Block volume of 3 GiB')).toBeVisible();
  await expect(badge).toHaveText('available');
  await page.getByRole('tab', { name: 'Jobs' }).click();
  await expect(page.getByRole('row').filter({ hasText: 'Expand data' })).toContainText('succeeded');
  await page.getByRole('link', { name: 'Expand data' }).click();
  await expect(page.getByText('100 %')).toBeVisible();
  await shot(page, 'storage-job', true);

  // Deleted by its name, once its snapshot is. The clone stays.
  await page.goto(`${g.url}/volumes`);
  await choose(page, 'Actions for data', 'Delete…');
  const remove = await dialog(page, 'storage-delete', 'Delete data?');
  await expect(remove.getByRole('button', { name: 'Delete the volume' })).toBeDisabled();
  await remove.getByLabel('Type data to continue').fill('data');
  await remove.getByRole('button', { name: 'Delete the volume' }).click();
  await expect(remove.getByRole('alert')).toContainText('the volume has 1 snapshots; delete them first');
  await remove.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('link', { name: 'data', exact: true }).click();
  await page.getByRole('tab', { name: 'Snapshots' }).click();
  await choose(page, 'Actions for before', 'Delete…');
  const forget = await dialog(page, 'storage-snapshot-delete', 'Delete the snapshot before?');
  await expect(forget.getByText('1 volume was made of it')).toContainText('data-2');
  await forget.getByLabel('Type before to continue').fill('before');
  await forget.getByRole('button', { name: 'Delete the snapshot' }).click();
  await expect(page.getByText('There are no snapshots')).toBeVisible();
  await choose(page, 'Actions for data', 'Delete…');
  await remove.getByLabel('Type data to continue').fill('data');
  await remove.getByRole('button', { name: 'Delete the volume' }).click();
  await expect(page.getByText('There is no such volume here')).toBeVisible();
  await page.getByRole('link', { name: 'All volumes' }).click();
  await expect(page.getByRole('link', { name: 'data', exact: true })).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'data-2' })).toBeVisible();
  expect(await volumes()).toMatchObject([{ name: 'data-2', state: 'available', size_bytes: 2 * 2 ** 30 }]);
});

test('a volume is moved to the trash, brought back under another name, and another one removed for ever', async ({ page }) => {
  const make = async (name: string) => g.done<{ id: string }>('POST', '/volumes', { name, size_bytes: 1 << 20 });
  await make('trashed');
  await page.setViewportSize({ width: 1280, height: 900 });
  await open(page, g, '/volumes');
  const discard = async (name: string, keep: string) => {
    await page.goto(`${g.url}/volumes`);
    await choose(page, `Actions for ${name}`, 'Move to the trash…');
    const form = await dialog(page, 'storage-to-trash', `Move ${name} to the trash`);
    await expect(form.getByLabel('Keep it for')).toHaveValue('7 days');
    await form.getByLabel('Keep it for').fill(keep);
    await form.getByRole('button', { name: 'Move it to the trash' }).click();
    return form;
  };
  const form = await discard('trashed', '31 days');
  await expect(form.getByLabel('Keep it for')).toHaveAttribute('aria-invalid', 'true');
  await form.getByLabel('Keep it for').fill('2 days');
  await form.getByRole('button', { name: 'Move it to the trash' }).click();
  await expect(form).toBeHidden();
  await page.getByRole('link', { name: 'Trash', exact: true }).click();
  const row = page.getByRole('row').filter({ hasText: 'trashed' });
  await expect(row).toContainText('in 2 days');
  await expectAccessible(page);
  await shot(page, 'storage-trash', true);

  // Its name is taken meanwhile.
  await make('trashed');
  await choose(page, 'Actions for trashed', 'Bring back…');
  const back = await dialog(page, 'storage-undelete', 'Bring back trashed');
  await back.getByRole('button', { name: 'Bring it back' }).click();
  await expect(back.getByLabel('Name')).toHaveAttribute('aria-invalid', 'true');
  await back.getByLabel('Name').fill('back');
  await back.getByRole('button', { name: 'Bring it back' }).click();
  await expect(page.getByText('The trash is empty')).toBeVisible();
  await expect.poll(async () => (await volumes()).filter((v) => v.state === 'available').map((v) => v.name)).toEqual(expect.arrayContaining(['trashed', 'back']));

  await discard('trashed', '1 day');
  await page.goto(`${g.url}/trash`);
  await choose(page, 'Actions for trashed', 'Remove for ever…');
  const purge = await dialog(page, 'storage-purge', 'Remove trashed for ever?');
  await purge.getByRole('textbox').fill('trashed');
  await purge.getByRole('button', { name: 'Remove it for ever' }).click();
  await expect(page.getByText('The trash is empty')).toBeVisible();
});

test('jobs are paused with a reason to wait, cancelled and resumed, on a narrow screen by the keyboard', async ({ page }) => {
  await page.setViewportSize({ width: 375, height: 800 });
  await page.goto(g.url);
  await page.getByLabel('Token', { exact: true }).fill(g.token('ada', 'admin'));
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Pause jobs…' }).focus();
  await page.keyboard.press('Enter');
  const pause = await dialog(page, 'storage-pause', 'Pause jobs?');
  await pause.getByRole('button', { name: 'Pause jobs' }).focus();
  await page.keyboard.press('Enter');
  await expect(page.getByText('Jobs are paused.')).toBeVisible();

  // What is asked for meanwhile waits, and its stream tells of the end.
  const { job_id } = await g.call<{ job_id: string }>('POST', '/volumes', { name: 'waits', size_bytes: 2 ** 20 });
  await page.goto(`${g.url}/jobs/${job_id}`);
  await expect(page.getByText('It waits until jobs are resumed.')).toBeVisible();
  await expectNoSidewaysScroll(page);
  await expectAccessible(page);
  await shot(page, 'storage-job-waits-375', true);
  const { job_id: second } = await g.call<{ job_id: string }>('POST', '/volumes', { name: 'unwanted', size_bytes: 2 ** 20 });
  await page.getByRole('button', { name: 'Resume jobs…' }).focus();
  await page.keyboard.press('Escape');
  await page.goto(`${g.url}/jobs/${second}`);
  await page.getByRole('button', { name: 'Cancel the job…' }).focus();
  await page.keyboard.press('Enter');
  const cancel = await dialog(page, 'storage-cancel', /^Cancel “Create /);
  await cancel.getByRole('button', { name: 'Cancel the job' }).focus();
  await page.keyboard.press('Enter');
  const badge = page.locator('.page-title .badge');
  await expect(badge).toHaveText('cancelled');
  await expect(page.getByText('CANCELLED', { exact: true })).toBeVisible();

  await page.goto(`${g.url}/jobs/${job_id}`);
  await expect(badge).toHaveText('queued');
  await page.getByRole('button', { name: 'Resume jobs…' }).focus();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Resume jobs?' })).toBeVisible();
  await page.getByRole('dialog').getByRole('button', { name: 'Resume jobs' }).focus();
  await page.keyboard.press('Enter');
  await expect(badge).toHaveText('succeeded');
  await expect(page.getByText('Jobs are paused.')).toHaveCount(0);
  expect((await volumes()).map((v) => v.name)).toContain('waits');
});
