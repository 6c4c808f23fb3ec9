/** Every page, in both themes and widths: it shows what it should, is accessible, and never scrolls sideways. */
import { expect, expectAccessible, expectNoSidewaysScroll, open, shot, test, world } from './console';

const { fixtures } = world;

const pages: [name: string, path: string, expected: string | RegExp][] = [
  ['overview', '/', 'Needs attention'],
  ['sites', '/sites', 'depot-harbour'],
  ['site', `/sites/${fixtures.sites['plant-1']?.id}`, 'press-1'],
  ['site-deployments', `/sites/${fixtures.sites['plant-1']?.id}#deployments`, 'vision'],
  ['site-events', `/sites/${fixtures.sites['plant-1']?.id}#events`, 'temp.oven'],
  ['site-offline', `/sites/${fixtures.sites['quiet-1']?.id}`, 'Check the power and the network of the site'],
  ['site-alerts', `/sites/${fixtures.sites['quiet-1']?.id}#alerts`, 'site offline'],
  ['site-activity', `/sites/${fixtures.sites['plant-1']?.id}#activity`, /enrolled|registered|deploy/i],
  ['site-revoked', `/sites/${fixtures.sites['retired-1']?.id}`, 'This site is revoked'],
  ['tokens', '/sites/tokens', 'Installers, week 14'],
  ['devices', '/devices', 'press-1'],
  ['device', '/devices/press-1', 'Desired, version'],
  ['device-reported', '/devices/press-1#reported', 'Reported, version'],
  ['device-diff', '/devices/press-1#diff', 'What differs'],
  ['device-ota', '/devices/press-1#ota', /Update/],
  ['campaigns', '/campaigns', 'Spring release'],
  ['campaign-paused', `/campaigns/${fixtures.campaign.paused}`, 'It waits for a decision'],
  ['campaign-draft', `/campaigns/${fixtures.campaign.draft}`, 'Depot scanners'],
  ['routes', '/routes', 'Door alarms'],
  ['route-good', `/routes/${fixtures.route.good}`, 'Delivery per minute'],
  ['route-bad', `/routes/${fixtures.route.bad}`, 'Delivery per minute'],
  ['events', '/events', 'following the newest'],
  ['deadletters', '/deadletters', 'door.opened'],
  ['deployments', '/deployments', 'vision'],
  ['deployment', `/deployments/${fixtures.deployment.running}`, 'ghcr.io/acme/gateway:1.5.0'],
  ['deployment-failed', `/deployments/${fixtures.deployment.failed}`, 'killed for want of memory'],
  ['deployment-unknown', `/deployments/${fixtures.deployment.unheard}`, 'how the container does is not known'],
  ['policies', '/policies', 'Acme images only'],
  ['alerts', '/alerts', /quiet-1/],
  ['activity', '/activity', 'following'],
  // The newest hundred entries are what the tests before did: any action will do.
  ['audit', '/audit', /^[a-z_]+\.[a-z_]+$/],
  ['orgs', '/orgs', 'Acme Logistics'],
  ['not-found', '/nowhere', 'There is no such page here'],
];

const sizes = { 1280: { width: 1280, height: 860 }, 380: { width: 380, height: 800 } };

for (const [name, path, expected] of pages) {
  test(`the page ${name} is whole in both themes and widths`, async ({ page }) => {
    for (const width of [1280, 380] as const) {
      await page.setViewportSize(sizes[width]);
      await page.emulateMedia({ colorScheme: 'light' });
      if (width === 1280) await open(page, path);
      await expect(page.getByRole('main').getByText(expected).filter({ visible: true }).first()).toBeVisible();
      await expect(page.locator('.skeleton')).toHaveCount(0);
      await expectNoSidewaysScroll(page);
      // The wide page is examined in light, the narrow one in dark.
      if (width === 1280) await expectAccessible(page);
      await shot(page, `${name}-light-${width}`, true);
      await page.emulateMedia({ colorScheme: 'dark' });
      if (width === 380) await expectAccessible(page);
      await shot(page, `${name}-dark-${width}`, true);
    }
  });
}
