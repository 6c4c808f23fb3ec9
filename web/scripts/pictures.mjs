// Takes the pictures of docs/images from a running edge control plane:
//
//   node scripts/pictures.mjs http://127.0.0.1:8080 "$(jq -r .edge.admin_token ../.mainstay/credentials.json)"
//
// The simulator should be running against it, and a campaign be under way.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from '@playwright/test';

const [url, token] = process.argv.slice(2);
if (!url || !token) throw new Error('usage: node scripts/pictures.mjs URL ADMIN-TOKEN');
const folder = join(import.meta.dirname, '../../docs/images');
mkdirSync(folder, { recursive: true });

async function first(path) {
  const response = await fetch(`${url}/api/v1${path}`, { headers: { Authorization: `Bearer ${token}` } });
  return (await response.json())[0];
}

const campaign = await first('/ota/campaigns?status=running');
const device = await first('/devices');
const pictures = [
  { name: 'edge-overview', path: '/', theme: 'light', width: 1180, height: 760, wait: 25_000 },
  { name: 'edge-campaign', path: `/campaigns/${campaign?.id}`, theme: 'dark', width: 1180, height: 760, wait: 1_500, skip: !campaign },
  { name: 'edge-twin', path: `/devices/${encodeURIComponent(device?.device_id ?? '')}`, theme: 'light', width: 1180, height: 700, wait: 1_500, tab: 'Difference', skip: !device },
  { name: 'edge-phone', path: '/sites', theme: 'dark', width: 380, height: 720, wait: 1_500 },
];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
for (const { name, path, theme, width, height, wait, tab, skip } of pictures) {
  if (skip) {
    console.error(`${name}: there is nothing to show`);
    continue;
  }
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce' });
  await context.request.post(`${url}/console/session`, { headers: { 'X-Mainstay-Console': 'pictures' }, data: { token } });
  const page = await context.newPage();
  await page.goto(url + path);
  if (tab) await page.getByRole('tab', { name: tab }).click();
  await page.waitForTimeout(wait); // for lists to fill, and rates to be measured
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await context.close();
  console.log(name);
}
await browser.close();
