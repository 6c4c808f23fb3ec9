/** The console of the load balancer, in front of one that balances real packets. */
import { expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { adminKey, open, readonlyKey, startBalancer, startHelpless, whyNot, type Balancer } from './lb';

test.describe('a load balancer at work', () => {
  const reason = process.env['MAINSTAY_REQUIRE'] === 'all' ? undefined : whyNot();
  test.skip(reason !== undefined, reason);

  let lb: Balancer;
  test.beforeAll(async () => {
    lb = await startBalancer();
  });
  test.afterAll(async () => {
    // What was not started needs no end.
    await (lb as Balancer | undefined)?.stop();
  });

  test('one signs in with a key, which is kept nowhere', async ({ page }) => {
    await page.goto(`${lb.url}/backends`);
    await page.getByLabel('API key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await expect(page.getByRole('alert')).toContainText('not one of this load balancer');
    await page.getByLabel('API key').fill(readonlyKey);
    await page.keyboard.press('Enter');
    // The page that was asked for is there, not the first one.
    await expect(page.getByRole('heading', { name: 'Backends', level: 1 })).toBeVisible();
    const stored = await page.evaluate(() => JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie, location.href]));
    expect(stored).not.toContain(readonlyKey);
    await page.reload();
    await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
    await open(page, lb.url, adminKey);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
    await expect(page.getByText('Your session is over')).toHaveCount(0);
  });

  const pages: [name: string, path: string, expected: string | RegExp][] = [
    ['overview', '/', 'Nothing was dropped'],
    ['vips', '/vips', '[2001:db8:98::10]:8000–8100'],
    ['vip', '/vips/198.51.100.10/80/tcp', 'No healthy backend'],
    ['vip-missing', '/vips/192.0.2.99/80/tcp', 'There is no such VIP here'],
    ['backends', '/backends', 'connected'],
    ['bgp', '/bgp', 'established'],
    ['node', '/node', 'XDP mode asked for'],
    ['not-found', '/nowhere', 'There is no such page here'],
  ];

  for (const [name, path, expected] of pages) {
    test(`the page ${name} is whole in both themes and widths`, async ({ page }) => {
      await page.setViewportSize({ width: 1280, height: 860 });
      await page.emulateMedia({ colorScheme: 'light' });
      await open(page, lb.url + path);
      for (const width of [1280, 380]) {
        await page.setViewportSize({ width, height: 860 });
        await page.emulateMedia({ colorScheme: 'light' });
        await expect(page.getByRole('main').getByText(expected).filter({ visible: true }).first()).toBeVisible();
        await expect(page.locator('.skeleton')).toHaveCount(0);
        await expectNoSidewaysScroll(page);
        if (width === 1280) await expectAccessible(page);
        await shot(page, `lb-${name}-light-${width}`, true);
        await page.emulateMedia({ colorScheme: 'dark' });
        if (width === 380) await expectAccessible(page);
        await shot(page, `lb-${name}-dark-${width}`, true);
      }
    });
  }

  test('traffic is seen as it flows, of the node, of a VIP and of its backends', async ({ page }) => {
    let clients = true;
    const traffic = (async () => {
      // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- it ends below
      while (clients) {
        const answer = await fetch('http://198.51.100.10/', { headers: { Connection: 'close' } });
        expect(await answer.text()).toBe('hello');
      }
    })();
    try {
      await open(page, lb.url);
      await expect(page.getByRole('figure', { name: 'Packets since this page was opened' })).toBeVisible({ timeout: 20_000 });
      await expect(page.getByRole('figure', { name: 'New flows since this page was opened' })).toBeVisible();
      const flows = page.locator('.tile', { hasText: 'New flows' }).locator('.tile-value');
      await expect(flows).toHaveText(/^[1-9][\d.,K]*\/s$/);
      await shot(page, 'lb-traffic', true);
      await page.getByText('Show as a table').first().click();
      await expect(page.getByRole('region', { name: 'Packets since this page was opened, as a table' }).getByRole('row').nth(2)).toBeVisible();
      await expectAccessible(page);

      await page.getByRole('link', { name: '198.51.100.10:80' }).click();
      await expect(page.getByRole('heading', { name: '198.51.100.10:80', level: 1 })).toBeVisible();
      await expect(page.getByRole('figure', { name: 'Packets and new flows of the VIP' })).toBeVisible();
      const backends = page.getByRole('table', { name: 'Backends of the VIP' });
      for (const b of lb.backends) await expect(backends.getByRole('row', { name: `${lb.host}:${b.port}` })).toContainText(/[1-9][\d.,]* [kM]?bit\/s/);
      await expectAccessible(page);
      await shot(page, 'lb-vip-traffic', true);
    } finally {
      clients = false;
      await traffic;
    }
  });

  test('what operators and probes do is shown: drain, weight, failure, recovery', async ({ page }) => {
    const [first, second, third] = lb.backends as [Balancer['backends'][0], Balancer['backends'][0], Balancer['backends'][0]];
    const rows = await lb.call<{ id: number; port: number }[]>('GET', '/backends');
    const id = (port: number) => rows.find((r) => r.port === port)?.id;
    await open(page, `${lb.url}/backends`);
    const row = (port: number) => page.getByRole('table', { name: 'Backends' }).getByRole('row', { name: `${lb.host}:${port} ` });

    await lb.call('POST', `/backends/${id(first.port)}/drain`);
    await expect(row(first.port)).toContainText('draining (operator)');
    await lb.call('POST', `/backends/${id(second.port)}/weight`, { weight: 70 });
    await expect(row(second.port)).toContainText('70 (set by operator)');
    await third.stop();
    await expect(row(third.port)).toContainText('down');
    await expect(row(third.port)).toContainText('connect: connection refused');
    await expectAccessible(page);
    await shot(page, 'lb-backends-states', true);
    await expect(page.getByRole('link', { name: 'Backends 1' })).toBeVisible();

    await page.getByRole('combobox', { name: 'State' }).selectOption('down');
    await expect(page.getByRole('table', { name: 'Backends' }).getByRole('row')).toHaveCount(2);
    await page.getByRole('combobox', { name: 'State' }).selectOption('');
    await page.getByRole('link', { name: 'VIPs', exact: true }).click();
    await expect(page.getByText('1 of 3 healthy (1 draining, 1 down)')).toBeVisible();

    // A failed probe wins over the drain.
    await first.stop();
    await second.stop();
    await expect(page.getByText('0 of 3 healthy (3 down)')).toBeVisible();
    await page.getByRole('link', { name: 'Overview' }).click();
    await expect(page.locator('.tile', { hasText: /^VIPs/ })).toContainText('1 without a healthy backend');
    // Nobody answers now: what clients send is dropped, and counted.
    await expect(fetch('http://198.51.100.10/', { signal: AbortSignal.timeout(1500) })).rejects.toThrow();
    await expect(page.getByRole('table', { name: 'Dropped packets by reason' }).getByRole('row', { name: /^no backend [1-9]/ })).toBeVisible();
    await shot(page, 'lb-overview-trouble', true);
    await page.getByRole('link', { name: 'BGP sessions 1', exact: true }).click();
    await expect(page.getByRole('table', { name: 'Announcements' }).getByRole('row', { name: '198.51.100.10:80' })).toContainText('withdrawn');
    await shot(page, 'lb-bgp-withdrawn', true);

    for (const b of lb.backends) await b.start();
    await lb.call('POST', `/backends/${id(first.port)}/undrain`);
    await lb.call('POST', `/backends/${id(second.port)}/weight`, { weight: 0 });
    await expect(page.getByRole('table', { name: 'Announcements' }).getByRole('row', { name: '198.51.100.10:80' })).toContainText('announced');
    await page.getByRole('link', { name: 'VIPs', exact: true }).click();
    await expect(page.getByText('3 of 3 healthy')).toBeVisible();
  });

  test('BGP peers are shown with their state', async ({ page }) => {
    await open(page, `${lb.url}/bgp`);
    const sessions = page.getByRole('table', { name: 'BGP sessions' });
    await expect(sessions.getByRole('row', { name: `${lb.host} 65010` })).toContainText('established');
    await expect(sessions.getByRole('row', { name: '65011' })).toContainText(/active|idle/);
    await expect(page.getByRole('table', { name: 'Announcements' }).getByRole('row', { name: '198.51.100.10:80' })).toContainText('65001:100, no-export');
  });

  test('a bad configuration file is told of on every page until it is mended', async ({ page }) => {
    await open(page, lb.url);
    await expect(page.locator('.tile').first()).toBeVisible();
    lb.write(lb.config.replace('protocol: udp', 'protocol: carrier-pigeon'));
    const banner = page.getByRole('alert').filter({ hasText: 'The configuration file was refused' });
    await expect(banner).toContainText('carrier-pigeon');
    for (const name of ['VIPs', 'Backends', 'BGP sessions', 'Configuration']) {
      await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: new RegExp(`^${name}`) }).click();
      await expect(page.getByRole('heading', { name, level: 1 })).toBeVisible();
      await expect(banner).toBeVisible();
    }
    await expect(page.getByText('refused', { exact: true })).toBeVisible();
    for (const width of [1280, 380]) {
      await page.setViewportSize({ width, height: 860 });
      await expectNoSidewaysScroll(page);
      await expectAccessible(page);
      await shot(page, `lb-config-refused-${width}`, true);
    }
    lb.write(lb.config);
    await expect(banner).toHaveCount(0);
    await expect(page.getByText('in force', { exact: true })).toBeVisible();
  });

  test('the keyboard is enough', async ({ page }) => {
    await page.goto(lb.url);
    await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
    await page.keyboard.press('Tab');
    await expect(page.getByLabel('API key')).toBeFocused();
    await page.keyboard.type(readonlyKey);
    await page.keyboard.press('Enter');
    await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
    await page.keyboard.press('g');
    await page.keyboard.press('v');
    await expect(page.getByRole('heading', { name: 'VIPs', level: 1 })).toBeFocused();
    await page.keyboard.press('/');
    await page.keyboard.type('2001:db8');
    await expect(page.getByRole('table', { name: 'VIPs' }).getByRole('row')).toHaveCount(2);
    await page.getByRole('link', { name: '[2001:db8:98::10]:8000–8100' }).focus();
    await page.keyboard.press('Enter');
    await expect(page.getByRole('heading', { name: '[2001:db8:98::10]:8000–8100', level: 1 })).toBeFocused();
  });
});

test.describe('a load balancer without keys', () => {
  test('one is let in without signing in, told why nothing is balanced, and asked once there is a key', async ({ page }) => {
    let lb = await startHelpless();
    try {
      await page.goto(lb.url);
      await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
      await expect(page.getByRole('alert').filter({ hasText: 'This node is not ready.' })).toContainText('nowhere0');
      await expect(page.getByRole('button', { name: 'Sign out' })).toHaveCount(0);
      await expectAccessible(page);
      await shot(page, 'lb-not-ready', true);
      await page.getByRole('link', { name: 'BGP sessions', exact: true }).click();
      await expect(page.getByText('No BGP peers are configured')).toBeVisible();

      await lb.stop();
      await expect(page.getByText('Reconnecting')).toBeVisible();
      lb = await startHelpless({ LB_API_KEY: adminKey }, lb.port);
      await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
      await page.getByLabel('API key').fill(adminKey);
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
      await expect(page.getByRole('heading', { name: 'BGP sessions', level: 1 })).toBeVisible();

      await lb.stop();
      lb = await startHelpless({ LB_API_KEY: `${adminKey}-2` }, lb.port);
      await expect(page.getByText('Your session is over')).toBeVisible();
    } finally {
      await lb.stop();
    }
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`the sign-in page is accessible in the ${colorScheme} theme, also when narrow`, async ({ page }) => {
      const lb = await startHelpless({ LB_API_KEY: adminKey });
      try {
        await page.emulateMedia({ colorScheme });
        for (const width of [1280, 380]) {
          await page.setViewportSize({ width, height: 800 });
          await page.goto(lb.url);
          await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
          await expectAccessible(page);
          await expectNoSidewaysScroll(page);
          await shot(page, `lb-signin-${colorScheme}-${width}`);
        }
      } finally {
        await lb.stop();
      }
    });
  }
});
