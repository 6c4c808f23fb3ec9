/**
 * The pictures of the load balancer in docs/images, of one that balances real packets:
 *
 *     PICTURES=1 npm run e2e -- lb-pictures
 */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from './console';
import { open, startBalancer, traffic } from './lb';

const folder = join(import.meta.dirname, '../../docs/images');
const mostBytes = 150_000;

test('pictures of the overview, wide and on a phone', async ({ browser }) => {
  // A plot is worth looking at after a minute of traffic.
  test.setTimeout(180_000);
  const lb = await startBalancer();
  // When a backend fails, what is on its way to it does too.
  const flowing = traffic(lb, { refused: true });
  try {
    // The peer that is nowhere is for other tests.
    lb.write(lb.config.replace(/.*asn: 65011.*\n/, ''));
    const wide = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: 'light', reducedMotion: 'reduce' });
    const phone = await browser.newPage({ viewport: { width: 390, height: 844 }, colorScheme: 'dark', reducedMotion: 'reduce' });
    const pages = { 'lb-overview': wide, 'lb-phone': phone };
    for (const page of Object.values(pages)) await open(page, lb.url);

    const [drained, , stopped] = lb.backends;
    const figure = wide.getByRole('figure', { name: 'Packets of the node' });
    const samples = figure.locator('tbody tr');
    await figure.getByText('Show as a table').click();
    await expect.poll(() => samples.count(), { timeout: 60_000 }).toBeGreaterThan(14);
    const rows = await lb.call<{ id: number; address: string }[]>('GET', '/backends');
    await lb.call('POST', `/backends/${rows.find((r) => r.address === drained.host)?.id}/drain`);
    await expect.poll(() => samples.count(), { timeout: 60_000 }).toBeGreaterThan(20);
    await stopped.stop();
    await expect.poll(() => samples.count(), { timeout: 60_000 }).toBeGreaterThan(30);

    await figure.getByText('Show as a table').click();
    for (const [name, page] of Object.entries(pages)) {
      await expect(page.getByText('1 of 1', { exact: true })).toBeVisible();
      await expect(page.getByRole('row', { name: `${drained.name} ` })).toContainText('draining (operator)');
      await expect(page.getByRole('row', { name: `${stopped.name} ` })).toContainText('connection refused');
      const path = join(folder, `${name}.png`);
      await page.screenshot({ path, animations: 'disabled' });
      expect(statSync(path).size).toBeLessThan(mostBytes);
    }
  } finally {
    await flowing.stop();
    await lb.stop();
  }
});
