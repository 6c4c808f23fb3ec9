/** Deployments and policy packs. */
import { api, choose, dialog, expect, open, test, world } from './console';
import { enroll } from './fixtures';

test('a container is deployed with ports and a health check, changed, stopped, taken back and deleted', async ({ page }) => {
  const { id: site, agent } = await enroll(api, world.full.credentials.enrollment_token, 'deploy-site');
  await open(page, '/deployments');
  await page.getByRole('button', { name: 'Deploy a container' }).click();
  const form = await dialog(page, 'deployment');
  await form.getByRole('button', { name: 'Deploy' }).click();
  await expect(form.getByText('Fill this in.').first()).toBeVisible();
  await form.getByRole('combobox', { name: 'Site' }).selectOption('deploy-site');
  await form.getByLabel('Name', { exact: true }).fill('Not Good');
  await form.getByRole('textbox', { name: 'Image' }).fill('ghcr.io/acme/cam:1.0');
  await form.getByLabel('Version', { exact: true }).fill('1.0');
  await form.getByLabel('Environment').fill('LOG=debug\nPEER=a=b');
  await form.getByLabel('Ports').fill('8080:80/tcp\nnonsense');
  await form.getByRole('button', { name: 'Deploy' }).click();
  await expect(form.getByText('May have lower-case letters')).toBeVisible();
  await expect(form.getByText('“nonsense” is not a port.')).toBeVisible();
  await dialog(page, 'deployment-invalid');
  await form.getByLabel('Name', { exact: true }).fill('cam');
  await form.getByLabel('Ports').fill('8080:80/tcp\n53/udp');
  await form.getByText('More settings').click();
  await form.getByLabel('Health check').fill('wget\n-q\nhttp://localhost/');
  await form.getByLabel('Start it again').selectOption('when it fails');
  await form.getByRole('button', { name: 'Deploy' }).click();
  await expect(page.getByRole('heading', { name: 'cam', level: 1 })).toBeVisible();
  const [made] = await api<{ id: string }[]>('GET', `/deployments?site_id=${site}`);
  const path = `/deployments/${made?.id}`;
  expect(await api('GET', path)).toMatchObject({
    env: { LOG: 'debug', PEER: 'a=b' },
    ports: [{ container_port: 80, host_port: 8080, protocol: 'tcp' }, { container_port: 53, protocol: 'udp' }],
    health: { command: ['wget', '-q', 'http://localhost/'], interval_seconds: 10 },
    restart: 'on_failure',
  });

  // Only what has run can be gone back to.
  await api('POST', `/agent/deployments/${made?.id}/status`, { site_id: site, status: 'running', observed_revision: 1 }, agent);
  await choose(page, 'Actions for cam', 'Edit');
  const edit = await dialog(page, 'deployment-edit');
  await expect(edit.getByLabel('Ports')).toHaveValue('8080:80/tcp\n53/udp');
  await edit.getByRole('textbox', { name: 'Image' }).fill('ghcr.io/acme/cam:1.1');
  await edit.getByLabel('Version', { exact: true }).fill('1.1');
  await edit.getByLabel('Environment').fill('');
  await edit.getByText('More settings').click();
  await expect(edit.getByLabel('Health check')).toHaveValue('wget\n-q\nhttp://localhost/');
  await edit.getByLabel('Health check').fill('');
  await edit.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('cam is at revision 2')).toBeVisible();
  const changed = await api<{ env: object; health: { command: string[] } | null }>('GET', path);
  expect(changed.env).toEqual({});
  expect(changed.health?.command ?? []).toEqual([]);

  await choose(page, 'Actions for cam', 'Go back to 1.0');
  await (await dialog(page, 'deployment-back')).getByRole('button', { name: 'Go back to 1.0' }).click();
  await expect(page.getByText('ghcr.io/acme/cam:1.0', { exact: true }).first()).toBeVisible();
  await choose(page, 'Actions for cam', 'Stop');
  await (await dialog(page, 'deployment-stop')).getByRole('button', { name: 'Stop it' }).click();
  await expect(page.getByText('cam is to be stopped.')).toBeVisible();
  await choose(page, 'Actions for cam', 'Start');
  await (await dialog(page, 'deployment-start', 'Start cam?')).getByRole('button', { name: 'Start it' }).click();
  await expect(page.getByText('cam is to be running.')).toBeVisible();
  await choose(page, 'Actions for cam', 'Delete');
  await (await dialog(page, 'deployment-delete', 'Delete cam?')).getByRole('button', { name: 'Delete the deployment' }).click();
  await expect(page).toHaveURL('/deployments');
  await expect(api('GET', path)).rejects.toThrow('404');
});

test('a deployment of a site that is offline is not said to run', async ({ page }) => {
  await open(page, '/deployments');
  const row = page.getByRole('table', { name: 'Deployments' }).getByRole('row', { name: /logger/ });
  await expect(row).toContainText(/unknown was running, site last seen \d+ .* ago/);
  await row.getByRole('link', { name: 'logger' }).click();
  await expect(page.getByText('The site is offline, so how the container does is not known.')).toBeVisible();
  await open(page, '/');
  await expect(page.getByRole('link', { name: /^Deployments up/ })).toContainText('1 unknown: site not online');
});

test('what no policy pack allows is refused, and the server’s reason is shown', async ({ page }) => {
  await open(page, '/deployments');
  await page.getByRole('button', { name: 'Deploy a container' }).click();
  const form = page.getByRole('dialog', { name: 'Deploy a container' });
  await form.getByRole('combobox', { name: 'Site' }).selectOption('plant-1');
  await form.getByLabel('Name', { exact: true }).fill('miner');
  await form.getByRole('textbox', { name: 'Image' }).fill('evil.example.com/miner:1');
  await form.getByLabel('Version', { exact: true }).fill('1');
  await form.getByRole('button', { name: 'Deploy' }).click();
  await expect(form.getByText('not on the allowlist of any policy pack')).toBeVisible();
  await dialog(page, 'deployment-refused');
});

test('a policy pack is made, tried, changed, disabled and deleted', async ({ page }) => {
  await open(page, '/policies');
  await page.getByRole('button', { name: 'Create a policy pack' }).click();
  const form = await dialog(page, 'policy');
  await form.getByLabel('Name', { exact: true }).fill('Harbour only');
  await form.getByLabel('Applies to').selectOption('depot-harbour');
  await form.getByLabel('Allowed images').fill('quay.io/harbour/*');
  await form.getByRole('button', { name: 'Create the policy pack' }).click();
  await expect(page.getByRole('table', { name: 'Policy packs' }).getByText('Harbour only')).toBeVisible();

  await page.getByLabel('Image', { exact: true }).fill('quay.io/harbour/crane:2');
  await page.getByRole('combobox', { name: 'On' }).selectOption('depot-harbour');
  await page.getByRole('button', { name: 'Try it' }).click();
  await expect(page.getByText('Harbour only allows it with')).toBeVisible();
  await page.getByLabel('Image', { exact: true }).fill('nginx');
  await page.getByRole('button', { name: 'Try it' }).click();
  await expect(page.getByText('may not run.')).toBeVisible();

  await choose(page, 'Actions for Harbour only', 'Edit');
  const edit = await dialog(page, 'policy-edit');
  await edit.getByLabel('Allowed images').fill('quay.io/harbour/*\ndocker.io/library/nginx*');
  await edit.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Harbour only is saved as version 2.')).toBeVisible();
  await page.getByRole('button', { name: 'Try it' }).click();
  await expect(page.getByText('may run.')).toBeVisible();

  await choose(page, 'Actions for Harbour only', 'Disable');
  await (await dialog(page, 'policy-disable')).getByRole('button', { name: 'Disable the pack' }).click();
  await expect(page.getByText('Harbour only is disabled.')).toBeVisible();
  await choose(page, 'Actions for Harbour only', 'Delete');
  await (await dialog(page, 'policy-delete', 'Delete Harbour only?')).getByRole('button', { name: 'Delete the pack' }).click();
  await expect(page.getByRole('table', { name: 'Policy packs' }).getByText('Harbour only')).toHaveCount(0);
});
