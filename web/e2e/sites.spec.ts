/** Sites and enrollment tokens. */
import { api, choose, dialog, expect, open, test, world } from './console';
import { enroll } from './fixtures';

const { enrollment_token } = world.full.credentials;

test('a site is enrolled: the command is shown, and the console says when the site has appeared', async ({ page }) => {
  await open(page, '/sites');
  await page.getByRole('button', { name: 'Enroll a site' }).click();
  const form = await dialog(page, 'enroll');
  await form.getByRole('button', { name: 'Create the token' }).click();
  await expect(form.getByText('Fill this in.')).toBeVisible();
  await expect(form.getByLabel('Name of the site')).toBeFocused();
  await form.getByLabel('Name of the site').fill("bob's plant");
  await form.getByRole('button', { name: 'Create the token' }).click();
  const waiting = await dialog(page, 'enroll-command', "Enroll bob's plant");
  const command = await waiting.getByRole('group', { name: 'Agent command' }).locator('pre').innerText();
  const token = /--enrollment-token (\S+)/.exec(command)?.[1] ?? '';
  expect(command).toBe(`mainstay agent --server ${world.full.url} --enrollment-token ${token} --name 'bob'\\''s plant' --data /var/lib/mainstay-agent`);
  await expect(waiting.getByText('Waiting for the site')).toBeVisible();
  const site = await enroll(api, token, "bob's plant");
  await expect(waiting.getByText("bob's plant has appeared.")).toBeVisible();
  await waiting.getByRole('link', { name: 'Open the site' }).click();
  await expect(page).toHaveURL(`/sites/${site.id}`);
  await expect(page.getByRole('heading', { name: "bob's plant" })).toBeVisible();
});

test('a site is renamed and relabelled', async ({ page }) => {
  const { id } = await enroll(api, enrollment_token, 'rename-me', { zone: 'north' });
  await open(page, `/sites/${id}`);
  await choose(page, 'Actions for rename-me', 'Rename or relabel');
  const form = await dialog(page, 'site-edit');
  await form.getByLabel('Labels').fill('zone');
  await form.getByRole('button', { name: 'Save' }).click();
  await expect(form.getByText('“zone” has no name. Write one name=value a line.')).toBeVisible();
  await form.getByLabel('Labels').fill('');
  await form.getByLabel('Name').fill('renamed');
  await form.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('heading', { name: 'renamed' })).toBeVisible();
  expect(await api('GET', `/sites/${id}`)).toMatchObject({ name: 'renamed', labels: {} });
});

test('a site is deleted after a question that says what goes with it', async ({ page }) => {
  const { id } = await enroll(api, enrollment_token, 'delete-me');
  await open(page, `/sites/${id}`);
  await choose(page, 'Actions for delete-me', 'Delete');
  const question = await dialog(page, 'site-delete');
  await expect(question).toContainText('removed with all its devices, their twins and its deployments');
  await question.getByRole('button', { name: 'Delete the site' }).click();
  await expect(page).toHaveURL('/sites');
  await expect(page.getByText('delete-me is deleted.')).toBeVisible();
  await expect(page.getByRole('table', { name: 'Sites' }).getByText('delete-me')).toHaveCount(0);
});

test('with the keyboard alone: sign in, find a site, open it, revoke it', async ({ page }) => {
  const site = world.fixtures.sites['walk-me'];
  await page.goto('/');
  await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
  await page.keyboard.press('Tab');
  await expect(page.getByLabel('Username')).toBeFocused();
  await page.keyboard.type(world.full.credentials.admin_username);
  await page.keyboard.press('Tab');
  await page.keyboard.type(world.full.credentials.admin_password);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await expect(page.getByRole('heading', { name: 'Sites', level: 1 })).toBeFocused();
  await expect(page.getByRole('link', { name: 'walk-me' })).toBeVisible();
  await page.keyboard.press('/');
  await page.keyboard.type('walk-me');
  await expect(page.getByRole('row')).toHaveCount(2);
  const link = page.getByRole('link', { name: 'walk-me' });
  for (let i = 0; i < 20 && !(await link.evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press('Tab');
  await expect(link).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'walk-me' })).toBeFocused();
  await page.keyboard.press('Tab');
  const actions = page.getByRole('button', { name: 'Actions for walk-me' });
  await expect(actions).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('menuitem', { name: 'Rename or relabel' })).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const question = await dialog(page, 'site-revoke');
  await expect(question).toContainText('walk-me');
  // Escape changes nothing, and focus is where it was.
  await page.keyboard.press('Escape');
  await expect(question).toHaveCount(0);
  await expect(actions).toBeFocused();
  await page.keyboard.press('Enter');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await expect(question).toBeVisible();
  for (let i = 0; i < 6 && !(await page.getByRole('button', { name: 'Revoke the site' }).evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await expect(page.getByText('This site is revoked')).toBeVisible();
  expect(await api('GET', `/sites/${site?.id}`)).toMatchObject({ status: 'revoked' });
});

test('an enrollment token is made, shown once, and withdrawn', async ({ page }) => {
  await open(page, '/sites/tokens');
  await page.getByRole('button', { name: 'Create a token' }).click();
  const form = await dialog(page, 'token-create');
  await form.getByLabel('Name', { exact: true }).fill('for the roof');
  await form.getByLabel('Sites it may enroll').fill('0');
  await form.getByRole('button', { name: 'Create the token' }).click();
  await expect(form.getByText('Must be at least 1.')).toBeVisible();
  await form.getByLabel('Sites it may enroll').fill('3');
  await form.getByLabel('It works for').selectOption('7 days');
  await form.getByRole('button', { name: 'Create the token' }).click();
  const made = await dialog(page, 'token-made', 'Token for the roof');
  const token = await made.getByRole('group', { name: 'Enrollment token' }).locator('pre').innerText();
  await made.getByRole('button', { name: 'I have copied it' }).click();
  await expect(page.getByText(token)).toHaveCount(0);
  await expect(page.getByText('0 of 3')).toBeVisible();
  await choose(page, 'Actions for for the roof', 'Revoke');
  await (await dialog(page, 'token-withdraw')).getByRole('button', { name: 'Revoke the token' }).click();
  await expect(page.getByRole('table', { name: 'Enrollment tokens' }).getByText('for the roof')).toHaveCount(0);
  await expect(enroll(api, token, 'too-late')).rejects.toThrow('401');
});

test('lists are narrowed, sorted, and their columns chosen for good', async ({ page }) => {
  await open(page, '/sites');
  const table = page.getByRole('table', { name: 'Sites' });
  await page.getByRole('combobox', { name: 'Status' }).selectOption('revoked');
  await expect(table.getByText('retired-1')).toBeVisible();
  await expect(table.getByText('plant-1')).toHaveCount(0);
  await page.getByRole('combobox', { name: 'Status' }).selectOption('');
  const search = page.getByRole('searchbox', { name: 'Search all sites' });
  await search.fill('ZONE=north');
  await expect(table.getByText('plant-1')).toBeVisible();
  await expect(table.getByText('retired-1')).toHaveCount(0);
  await search.fill('nothing like it');
  await expect(page.getByText('No site matches')).toBeVisible();
  await page.getByRole('button', { name: 'Clear the filter' }).click();
  await page.getByRole('combobox', { name: 'Status' }).selectOption('online');
  await table.getByRole('button', { name: 'Name', exact: true }).click();
  await expect(page).toHaveURL('/sites?status=online&sort=name');
  // Back leads to the same rows, and so does a link that was sent to a colleague.
  await table.getByRole('link', { name: 'plant-1' }).click();
  await expect(page.getByRole('heading', { name: 'plant-1', level: 1 })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole('combobox', { name: 'Status' })).toHaveValue('online');
  const tab = await page.context().newPage();
  await tab.goto(page.url());
  await expect(tab.getByRole('columnheader', { name: 'Name' })).toHaveAttribute('aria-sort', 'ascending');
  await expect(tab.getByRole('table', { name: 'Sites' }).getByText('quiet-1')).toHaveCount(0);
  await tab.close();
  await expect(table.getByRole('columnheader', { name: 'Name' })).toHaveAttribute('aria-sort', 'ascending');
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByLabel('Labels').uncheck();
  await page.keyboard.press('Escape');
  await page.reload();
  await expect(table.getByText('plant-1')).toBeVisible();
  await expect(table.getByRole('columnheader', { name: 'Labels' })).toHaveCount(0);
});
