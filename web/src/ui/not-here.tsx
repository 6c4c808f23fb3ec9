/** Shown at addresses that no page has. Pages that are not for the caller do not exist, either. */
import { Link } from 'wouter';
import { Empty } from './notice';
import { Page } from './page';

export function NotHere() {
  return (
    <Page title="Not found">
      <Empty icon="search" title="There is no such page here" action={<Link href="/" className="btn btn-primary">Go to the overview</Link>}>
        The address may be mistyped, or the page is not for you.
      </Empty>
    </Page>
  );
}
