/** The live events of all sites. */
import { Card } from '../ui/facts';
import { Page } from '../ui/page';
import { EventList } from './event-list';

export function Events() {
  return (
    <Page title="Live events" lead="What the sites sent, newest first, for as long as events are kept.">
      <Card flush>
        <EventList />
      </Card>
    </Page>
  );
}
