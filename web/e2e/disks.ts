/** What both consoles are tested for on the page of a VM's disks. */
import type { Page } from '@playwright/test';
import { expect } from './console';

/** Adds a disk to a VM that is stopped, and removes it, without a pointer. The page shows the VM's disks. */
export async function addAndRemoveByKeyboard(page: Page, vm: string): Promise<void> {
  const tabTo = async (name: RegExp) => {
    const focused = () => page.evaluate(() => {
      const e = document.activeElement;
      return e?.getAttribute('aria-label') ?? e?.getAttribute('name') ?? e?.textContent ?? '';
    });
    for (let i = 0; i < 60 && !name.test(await focused()); i++) await page.keyboard.press('Tab');
    expect(await focused()).toMatch(name);
  };
  await expect(page.getByRole('table', { name: `Disks of ${vm}` }).getByRole('row', { name: /^system / })).toBeVisible();
  await tabTo(/^Add a disk$/);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog', { name: `Add a disk to ${vm}` })).toBeVisible();
  await tabTo(/^name$/);
  await page.keyboard.type('keys');
  await page.keyboard.press('Tab');
  await page.keyboard.type('1');
  await page.keyboard.press('Enter');
  await expect(page.getByText(`keys is added. ${vm} has it when it runs.`)).toBeVisible();
  await tabTo(/^Actions for keys$/);
  await page.keyboard.press('Enter');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog', { name: `Remove the disk keys of ${vm}?` })).toBeVisible();
  await page.keyboard.press('Tab');
  await expect(page.getByLabel('Type keys to continue')).toBeFocused();
  await page.keyboard.type('keys');
  await page.keyboard.press('Enter');
  await expect(page.getByText('keys is removed.')).toBeVisible();
}
