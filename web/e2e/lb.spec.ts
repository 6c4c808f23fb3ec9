/** The console of the load balancer, in front of one that balances real packets. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { choose, dialog, expect, expectAccessible, expectNoSidewaysScroll, shot, test } from './console';
import { adminKey, manyVIPs, open, readonlyKey, startBalancer, startHelpless, traffic, whyNot, type Balancer } from './lb';
import { binary } from './server';

/** The narrowest screen that is looked after. */
const narrow = 360;

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

  test('one signs in with a key, which no script can read, once for all tabs', async ({ page }) => {
    await page.goto(`${lb.url}/backends`);
    await page.getByLabel('API key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await expect(page.getByRole('alert')).toContainText('not one of this load balancer');
    await page.getByLabel('API key').fill(readonlyKey);
    await page.keyboard.press('Enter');
    // The page that was asked for is there, not the first one.
    await expect(page.getByRole('heading', { name: 'Backends', level: 1 })).toBeVisible();
    const stored = await page.evaluate(() => ({ local: Object.entries(localStorage), session: Object.entries(sessionStorage), cookies: document.cookie, address: location.href }));
    expect(stored).toEqual({ local: [], session: [], cookies: '', address: `${lb.url}/backends` });
    expect((await page.context().cookies()).map((c) => [c.httpOnly, c.sameSite, c.value.includes(readonlyKey)])).toEqual([[true, 'Strict', false]]);
    await page.reload();
    await expect(page.getByRole('heading', { name: 'Backends', level: 1 })).toBeVisible();
    const tab = await page.context().newPage();
    await tab.goto(`${lb.url}/bgp`);
    await expect(tab.getByRole('heading', { name: 'BGP sessions', level: 1 })).toBeVisible();
    await tab.getByRole('button', { name: 'Sign out' }).click();
    await expect(tab.getByRole('heading', { name: 'Sign in' })).toBeVisible();
    // The other tab is signed out with it.
    await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
    await open(page, lb.url, adminKey);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
    await expect(page.getByText('Your session has ended')).toHaveCount(0);
  });

  const pages: [name: string, path: string | (() => string), expected: string | (() => string)][] = [
    ['overview', '/', 'Nothing was dropped'],
    ['vips', '/vips', () => lb.vips.range],
    ['vip', () => `/vips/${lb.vips.web.replace(':', '/')}/tcp`, 'No healthy backend'],
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
      await open(page, lb.url + (typeof path === 'string' ? path : path()));
      for (const width of [1280, narrow]) {
        await page.setViewportSize({ width, height: 860 });
        await page.emulateMedia({ colorScheme: 'light' });
        await expect(page.getByRole('main').getByText(typeof expected === 'string' ? expected : expected()).filter({ visible: true }).first()).toBeVisible();
        await expect(page.locator('.skeleton')).toHaveCount(0);
        await expectNoSidewaysScroll(page);
        if (width === 1280) await expectAccessible(page);
        await shot(page, `lb-${name}-light-${width}`, true);
        await page.emulateMedia({ colorScheme: 'dark' });
        if (width === narrow) await expectAccessible(page);
        await shot(page, `lb-${name}-dark-${width}`, true);
      }
    });
  }

  test('traffic is seen as it flows, of the node, of a VIP and of its backends', async ({ page }) => {
    const flowing = traffic(lb);
    try {
      await open(page, lb.url);
      await expect(page.getByText('balancing', { exact: true })).toBeVisible();
      const packets = page.getByRole('figure', { name: 'Packets of the node' });
      await expect(packets).toBeVisible({ timeout: 20_000 });
      await expect(page.getByRole('figure', { name: 'New flows of the node' })).toBeVisible();
      for (const label of ['Packets', 'New flows']) await expect(page.locator('.tile', { hasText: label }).locator('.tile-value')).toHaveText(/^[1-9][\d.,K]*\/s$/);
      const vips = page.getByRole('table', { name: 'VIPs at a glance' });
      for (const vip of [lb.vips.web, lb.vips.range, lb.vips.dns]) {
        await expect(vips.getByRole('row', { name: vip })).toContainText(/[1-9][\d.,]* [kM]?bit\/s/);
      }

      // The plot goes on by itself: other pixels, and a line more in the table beside it.
      const drawn = () => packets.locator('canvas').evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL());
      const before = await drawn();
      await expect.poll(drawn).not.toBe(before);
      await page.getByText('Show as a table').first().click();
      const numbers = page.getByRole('region', { name: 'Packets of the node, as a table' }).getByRole('row');
      const had = await numbers.count();
      await expect.poll(() => numbers.count()).toBeGreaterThan(had);
      await expectAccessible(page);
      await shot(page, 'lb-traffic', true);

      // A page begins at its top, wherever the last one was scrolled to.
      await page.setViewportSize({ width: 1280, height: 500 });
      await vips.getByRole('link', { name: lb.vips.web }).click();
      await expect(page.getByRole('heading', { name: lb.vips.web, level: 1 })).toBeFocused();
      expect(await page.evaluate(() => scrollY)).toBe(0);
      await page.setViewportSize({ width: 1280, height: 860 });
      for (const figure of ['Packets of the VIP', 'New flows of the VIP']) await expect(page.getByRole('figure', { name: figure })).toBeVisible();
      const backends = page.getByRole('table', { name: 'Backends of the VIP' });
      for (const b of lb.backends) await expect(backends.getByRole('row', { name: b.name })).toContainText(/[1-9][\d.,]* [kM]?bit\/s/);
      await expectAccessible(page);
      await shot(page, 'lb-vip-traffic', true);
    } finally {
      await flowing.stop();
    }
  });

  test('the plots begin with what the node remembers', async ({ page }) => {
    test.setTimeout(150_000);
    const vip = `${lb.vips.web}:tcp`;
    // A minute is over some time in the first that the node runs, and remembered by the minute.
    const remembered = () => lb.call<{ points: unknown[] }>('GET', `/history?vip=${vip}`).then((h) => h.points.length);
    await expect.poll(remembered, { timeout: 100_000, intervals: [2_000] }).toBeGreaterThan(1);
    await open(page, `${lb.url}/vips/${lb.vips.web.replace(':', '/')}/tcp`);
    const began = Date.now();
    const packets = page.getByRole('figure', { name: 'Packets of the VIP' });
    await packets.getByText('Show as a table').click();
    const oldest = packets.getByRole('row').last().locator('time');
    expect(Date.parse((await oldest.getAttribute('datetime')) ?? '')).toBeLessThan(began - 10_000);
    await expectAccessible(page);
    await shot(page, 'lb-history', true);
  });

  test('what operators and probes do is shown: drain, weight, failure, recovery', async ({ page }) => {
    const [first, second, third] = lb.backends;
    const rows = await lb.call<{ id: number; address: string }[]>('GET', '/backends');
    const id = (host: string) => rows.find((r) => r.address === host)?.id;
    await open(page, `${lb.url}/backends`);
    const all = page.getByRole('table', { name: 'Backends' });
    const row = (b: { name: string }) => all.getByRole('row', { name: `${b.name} ` });

    await lb.call('POST', `/backends/${id(first.host)}/drain`);
    await expect(row(first)).toContainText('draining (operator)');
    await lb.call('POST', `/backends/${id(second.host)}/weight`, { weight: 70 });
    await expect(row(second)).toContainText('70 (override)');
    await third.stop();
    await expect(row(third)).toContainText('down');
    await expect(row(third)).toContainText('connect: connection refused');
    await expectAccessible(page);
    await shot(page, 'lb-backends-states', true);
    await expect(page.getByRole('link', { name: 'Backends 1' })).toBeVisible();

    await page.getByRole('combobox', { name: 'State' }).selectOption('down');
    await expect(all.getByRole('row')).toHaveCount(2);
    await page.getByRole('combobox', { name: 'State' }).selectOption('');
    await page.getByRole('link', { name: 'VIPs', exact: true }).click();
    await expect(page.getByText('1 of 3 healthy (1 draining, 1 down)')).toBeVisible();
    await page.getByRole('link', { name: 'Overview' }).click();
    const unhealthy = page.getByRole('table', { name: 'Backends that are not healthy' });
    await expect(unhealthy.getByRole('row').nth(1)).toContainText(`${third.name}${lb.vips.web}:tcpdownconnect: connection refused`);
    await expect(unhealthy.getByRole('row').nth(2)).toContainText(`${first.name}${lb.vips.web}:tcpdraining (operator)`);

    // A failed probe wins over the drain.
    await first.stop();
    await second.stop();
    await expect(unhealthy.getByRole('row')).toHaveCount(4);
    await expect(unhealthy).not.toContainText('draining');
    await expect(page.locator('.tile', { hasText: /^VIPs/ })).toContainText('1 without a healthy backend');
    // Nobody answers now: what clients send is dropped, and counted.
    await expect(fetch(`http://${lb.vips.web}/`, { signal: AbortSignal.timeout(1500) })).rejects.toThrow();
    await expect(page.getByRole('table', { name: 'Dropped packets by reason' }).getByRole('row', { name: /no backend [1-9]/ })).toBeVisible();
    await shot(page, 'lb-overview-trouble', true);
    await page.getByRole('link', { name: 'BGP sessions 1', exact: true }).click();
    await expect(page.getByRole('table', { name: 'Announcements' }).getByRole('row', { name: lb.vips.web })).toContainText('withdrawn');
    await shot(page, 'lb-bgp-withdrawn', true);

    for (const b of lb.backends) await b.start();
    await lb.call('POST', `/backends/${id(first.host)}/undrain`);
    await lb.call('POST', `/backends/${id(second.host)}/weight`, { weight: 0 });
    await expect(page.getByRole('table', { name: 'Announcements' }).getByRole('row', { name: lb.vips.web })).toContainText('announced');
    await page.getByRole('link', { name: 'VIPs', exact: true }).click();
    await expect(page.getByText('3 of 3 healthy')).toBeVisible();
  });

  test('a backend’s row gives the commands that change it, and says what would remain', async ({ page }) => {
    await open(page, `${lb.url}/vips/${lb.vips.web.replace(':', '/')}/tcp`);
    const [first] = lb.backends;
    await choose(page, `Actions for ${first.name}`, 'Commands to change it…');
    const opened = await dialog(page, 'lb-change', `Change ${first.name}`);
    // Of the weights 1, 2 and 3 the first goes.
    await expect(opened.getByText(/^2 of 3 backends of \S+ would take new connections; 83\.3 % of the weight\.$/)).toBeVisible();
    await page.setViewportSize({ width: narrow, height: 860 });
    await expectNoSidewaysScroll(page);
    await shot(page, 'lb-change-narrow');
    await page.setViewportSize({ width: 1280, height: 860 });

    // The words are those of the program.
    const run = async (title: string) => {
      const command = await opened.getByRole('group', { name: `Command: ${title}` }).locator('pre').innerText();
      // Not in step: this process leads the command to the namespace.
      await promisify(execFile)('sh', ['-c', command.replace(/^mainstay /, `${binary} `)], { env: { ...process.env, LB_API_KEY: adminKey } });
    };
    await run('drain it');
    await expect(opened.getByText('An operator drains it already.')).toBeVisible();
    await expect(opened.getByText(/^3 of 3 backends of \S+ would take new connections; 100 % of the weight\.$/)).toBeVisible();
    await run('undo a drain');
    await expect(opened.getByText('No operator drains it; it is healthy.')).toBeVisible();
    await opened.getByRole('textbox', { name: 'Weight' }).fill('5000');
    await expect(opened.getByText('Must be a whole number from 0 to 1000.')).toBeVisible();
    await opened.getByRole('textbox', { name: 'Weight' }).fill('5');
    await expect(opened.getByText(/^It would get 50 % of the new connections/)).toBeVisible();
    await run('change its weight');
    await expect(opened.getByText(/^It has 5 at \S+ now, which an operator set\./)).toBeVisible();
    await opened.getByRole('textbox', { name: 'Weight' }).fill('0');
    await run('change its weight');
    await expect(opened.getByText(/^It has 1 at \S+ now\./)).toBeVisible();
    await page.keyboard.press('Escape');
    await expect(opened).toHaveCount(0);
  });

  test("an orchestrator's drain is told from an operator's", async ({ page }) => {
    // What drains for an orchestrator has no route yet: its part of the real answers is put in on the way.
    await page.route('**/api/v1/vips', async (route) => {
      const response = await route.fetch();
      const vips = (await response.json()) as { backends: { state: string }[] }[];
      const backend = vips[0]?.backends[0];
      if (backend) backend.state = 'draining';
      await route.fulfill({ response, json: vips });
    });
    await page.route('**/api/v1/node', async (route) => {
      const response = await route.fetch();
      const node = (await response.json()) as object;
      await route.fulfill({ response, json: { ...node, orchestratorDrains: [{ source: 'kubernetes', backends: [lb.backends[0].name] }] } });
    });
    await open(page, `${lb.url}/backends`);
    await expect(page.getByRole('row', { name: lb.backends[0].name })).toContainText('draining (orchestrator)');
    await page.getByRole('link', { name: 'Configuration' }).click();
    await expect(page.getByRole('definition').filter({ hasText: lb.backends[0].name })).toBeVisible();
    await expect(page.getByText('kubernetes', { exact: true })).toBeVisible();
  });

  test('BGP peers are shown with their state', async ({ page }) => {
    await open(page, `${lb.url}/bgp`);
    const sessions = page.getByRole('table', { name: 'BGP sessions' });
    await expect(sessions.getByRole('row', { name: `${lb.host} 65010` })).toContainText('established');
    await expect(sessions.getByRole('row', { name: '65011' })).toContainText(/active|idle/);
    await expect(page.getByRole('table', { name: 'Announcements' }).getByRole('row', { name: lb.vips.web })).toContainText('65001:100, no-export');
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
    for (const width of [1280, narrow]) {
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
    await page.keyboard.press('Control+A');
    await page.keyboard.press('Delete');
    await page.getByRole('link', { name: lb.vips.web }).focus();
    await page.keyboard.press('ArrowDown');
    await expect(page.getByRole('link', { name: lb.vips.range })).toBeFocused();
    await page.keyboard.press('Enter');
    await expect(page.getByRole('heading', { name: lb.vips.range, level: 1 })).toBeFocused();
  });

  test('the tabulator goes through the page in the order in which it is read, and one sees where it is', async ({ page }) => {
    await open(page, `${lb.url}/vips`);
    await expect(page.getByRole('table', { name: 'VIPs' }).getByRole('row')).toHaveCount(4);
    const focused = () =>
      page.evaluate(() => {
        const at = document.activeElement;
        if (!(at instanceof HTMLElement) || at === document.body) return null;
        const style = getComputedStyle(at);
        const box = at.getBoundingClientRect();
        const shown = box.top >= 0 && box.bottom <= innerHeight && box.width > 0;
        const ringed = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
        return { name: (at.ariaLabel ?? at.innerText).trim().replaceAll(/\s+/g, ' '), seen: shown && ringed };
      });
    const stops: string[] = [];
    for (;;) {
      await page.keyboard.press('Tab');
      const stop = await focused();
      // Behind the last thing the browser's own begin.
      if (!stop) break;
      // What comes into sight with the focus takes a moment.
      await expect.poll(focused).toEqual({ name: stop.name, seen: true });
      stops.push(stop.name);
    }
    expect(stops).toEqual([
      ...['Skip to the content', 'Mainstay', 'Overview', 'Balancing', 'VIPs', 'Backends', 'Node', 'BGP sessions 1', 'Configuration', 'Theme', 'Sign out', 'Guide', 'API reference'],
      ...['Go to', 'Keyboard shortcuts', 'Filter the loaded VIPs', 'Columns', 'VIP', 'Protocol', 'Mode', 'Backends', 'Packets/s', 'Throughput', 'New flows/s', 'Dropped/s'],
      ...[lb.vips.web, lb.vips.range, lb.vips.dns],
    ]);
  });
});

test.describe('a load balancer without keys', () => {
  test('one is let in without signing in, told why nothing is balanced, and asked once there is a key', async ({ page }) => {
    let lb = await startHelpless();
    try {
      await page.goto(lb.url);
      await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
      await expect(page.getByText('not balancing', { exact: true })).toBeVisible();
      await expect(page.getByRole('alert').filter({ hasText: 'This node is not ready.' })).toContainText('nowhere0');
      await expect(page.getByRole('button', { name: 'Sign out' })).toHaveCount(0);
      await expectAccessible(page);
      await shot(page, 'lb-not-ready', true);
      await page.getByRole('link', { name: 'BGP sessions', exact: true }).click();
      await expect(page.getByText('No BGP peers are configured')).toBeVisible();

      await lb.stop();
      await expect(page.getByText('Reconnecting')).toBeVisible();
      await expect(page.getByText(/This node does not answer\. What is shown was so at \d\d:\d\d:\d\d/)).toBeVisible();
      await page.setViewportSize({ width: narrow, height: 740 });
      await expectNoSidewaysScroll(page);
      await expectAccessible(page);
      await shot(page, 'lb-silent', true);
      lb = await startHelpless({ env: { LB_API_KEY: adminKey }, port: lb.port });
      await expect(page.getByRole('heading', { name: 'Sign in' })).toBeVisible();
      await page.getByLabel('API key').fill(adminKey);
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
      await expect(page.getByRole('heading', { name: 'BGP sessions', level: 1 })).toBeVisible();

      await lb.stop();
      lb = await startHelpless({ env: { LB_API_KEY: `${adminKey}-2` }, port: lb.port });
      await expect(page.getByText('Your session has ended')).toBeVisible();
    } finally {
      await lb.stop();
    }
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`the sign-in page is accessible in the ${colorScheme} theme, also when narrow`, async ({ page }) => {
      const lb = await startHelpless({ env: { LB_API_KEY: adminKey } });
      try {
        await page.emulateMedia({ colorScheme });
        for (const width of [1280, narrow]) {
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

  test('a node that is slow to answer is asked again only when it has answered', async ({ page }) => {
    const lb = await startHelpless();
    try {
      await page.clock.install();
      let asked = 0;
      let slow = false;
      const held: (() => void)[] = [];
      await page.route('**/api/v1/vips', async (route) => {
        asked++;
        if (slow) await new Promise<void>((go) => held.push(go));
        await route.continue();
      });
      await page.goto(lb.url);
      await expect(page.locator('.tile').first()).toContainText('1');
      slow = true;
      await page.clock.runFor(2_000);
      await expect.poll(() => held.length).toBe(1);
      const before = asked;
      await page.clock.runFor(20_000);
      expect(asked).toBe(before);
      slow = false;
      held[0]?.();
      await expect
        .poll(async () => {
          await page.clock.runFor(2_000);
          return asked;
        })
        .toBeGreaterThan(before);
    } finally {
      await lb.stop();
    }
  });

  test('1,000 VIPs and 10,000 backends are shown a part at a time, searched whole, and asked for seldom', async ({ page }) => {
    const lb = await startHelpless({ config: manyVIPs() });
    try {
      await page.clock.install();
      let asked = 0;
      page.on('request', (request) => (asked += Number(request.url().endsWith('/api/v1/vips'))));
      await page.goto(lb.url);
      await expect(page.locator('.tile', { hasText: /^VIPs/ })).toContainText('1,000');
      await expect(page.locator('.tile', { hasText: /^Backends/ })).toContainText(/of 10,000, \d+ down/);
      await page.clock.runFor(10_000);
      await expect(page.locator('.tile', { hasText: /^Packets/ })).toContainText('0/s');
      const before = asked;
      // Time goes on by itself too, but not by seconds here: in four of them a small node would be asked twice.
      await page.clock.runFor(4_000);
      expect(asked).toBe(before);
      await page.clock.runFor(6_000);
      await expect.poll(() => asked).toBeGreaterThan(before);

      await expect(page.getByText('10 of 50 shown; all backends')).toBeVisible();
      await expect(page.getByRole('table', { name: 'VIPs at a glance' }).getByRole('row').nth(1)).toContainText('203.0.3.246:80');
      await shot(page, 'lb-many-overview', true);

      await page.getByRole('link', { name: 'All 1,000 VIPs' }).click();
      const vips = page.getByRole('table', { name: 'VIPs' }).getByRole('row');
      await expect(vips).toHaveCount(201);
      await page.getByRole('searchbox').fill('203.0.3.25');
      await expect(page.getByText('2 of 1,000 loaded VIPs shown')).toBeVisible();
      await page.getByRole('link', { name: '203.0.3.250:80' }).click();
      await expect(page.getByText('0 of 10 healthy (10 down)')).toBeVisible();

      await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: /^Backends/ }).click();
      const backends = page.getByRole('table', { name: 'Backends' }).getByRole('row');
      await expect(backends).toHaveCount(201);
      await expect(page.getByText('200 of 10,000 loaded backends shown')).toBeVisible();
      await page.getByRole('searchbox').fill('10.102.77.3:');
      await expect(backends).toHaveCount(2);
      await expect(backends.nth(1)).toContainText('203.0.2.78:80:tcp');
      await page.getByRole('searchbox').fill('');
      await page.getByRole('combobox', { name: 'State' }).selectOption('down');
      await expect(backends).toHaveCount(51);
      await page.getByRole('combobox', { name: 'State' }).selectOption('');
      await expectAccessible(page);
      await page.setViewportSize({ width: narrow, height: 740 });
      await expectNoSidewaysScroll(page);
      await shot(page, 'lb-many-narrow');
      await page.getByRole('button', { name: 'Show more' }).click();
      await expect(backends).toHaveCount(601);
    } finally {
      await lb.stop();
    }
  });
});
