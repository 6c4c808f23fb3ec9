/** Signing in without the form, in a service of any kind. */
import { expect, type Page } from '@playwright/test';

/** Gives the browser a session. The console itself is never opened with credentials. */
export async function signIn(page: Page, url: string, token: string): Promise<void> {
  const answer = await page.context().request.post(`${url}/console/session`, { headers: { 'X-Mainstay-Console': 'e2e' }, data: { token } });
  expect(answer.status(), await answer.text()).toBe(204);
}
