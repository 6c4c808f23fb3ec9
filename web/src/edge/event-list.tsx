/**
 * Live events, newest first. The newest events are polled every two seconds unless paused. Each
 * event can be opened to show its payload.
 */
import { useInfiniteQuery } from '@tanstack/react-query';
import { useDeferredValue, useState } from 'react';
import { useParam } from '../ui/address';
import { page } from '../ui/client';
import { JsonView } from '../ui/json-view';
import { Empty, Failure } from '../ui/notice';
import { plural } from '../ui/number';
import { Icon } from '../ui/icon';
import { Dialog } from '../ui/dialog';
import { Facts } from '../ui/facts';
import { Copyable } from '../ui/copy';
import { Clock, DateTime } from '../ui/time';
import { api, type EdgeEvent } from './api';
import { SiteLink } from './links';
import { SiteChoice } from './site-choice';

const pollMs = 2_000;
/**
 * The number of events that are kept while following the newest. "Load more" pauses and loads older
 * events.
 */
const tailSize = 100;

export function EventList({ site: fixedSite }: { site?: string }) {
  const [site, setSite] = useParam('site', '');
  const [topic, setTopic] = useParam('topic', '');
  const [paused, setPaused] = useState(false);
  const [open, setOpen] = useState<EdgeEvent>();
  const wanted = useDeferredValue(topic.trim());
  const siteId = fixedSite ?? site;
  const events = useInfiniteQuery({
    queryKey: ['events', siteId, wanted],
    queryFn: ({ pageParam, signal }) =>
      page(api.GET('/events', { params: { query: { limit: tailSize, cursor: pageParam, ...(siteId && { site_id: siteId }), ...(wanted && { topic: wanted }) } }, signal })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next,
    refetchInterval: paused ? false : pollMs,
    placeholderData: (before) => before,
    refetchOnWindowFocus: !paused,
  });
  const rows = events.data?.pages.flatMap((p) => p.items);
  const older = events.hasNextPage && (
    <button
      type="button"
      className="btn btn-small"
      disabled={events.isFetchingNextPage}
      onClick={() => {
        setPaused(true);
        void events.fetchNextPage();
      }}
    >
      {events.isFetchingNextPage ? 'Loading…' : 'Load older'}
    </button>
  );
  return (
    <>
      <div className="table-tools">
        <div className="table-filter">
          <Icon name="search" />
          <input className="input" type="search" data-filter value={topic} placeholder="Topic, as in temp.*" aria-label="Topic pattern; * matches any run of characters" onChange={(e) => setTopic(e.target.value)} />
        </div>
        {!fixedSite && <SiteChoice value={site} onChange={setSite} />}
        <span className="table-end">
          <button type="button" className="btn" aria-pressed={paused} onClick={() => setPaused(!paused)}>
            <Icon name={paused ? 'refresh' : 'pause'} /> {paused ? 'Follow again' : 'Pause'}
          </button>
        </span>
      </div>
      {!rows ? (
        <div className="card-body">{events.error ? <Failure error={events.error} retry={() => void events.refetch()} /> : <span className="skeleton" />}</div>
      ) : rows.length === 0 ? (
        <Empty icon="event" title={wanted || siteId ? 'No event matches' : 'No events yet'} action={older}>
          {events.hasNextPage
            ? 'Older events may match: a page of a search looks at a limited number of them.'
            : wanted
              ? `No kept event has a topic that matches ${wanted}. Use * for any run of characters.`
              : 'Events appear here as sites send them.'}
        </Empty>
      ) : (
        <>
          <div className="table-scroll">
            <table className="table table-cards" aria-label="Events">
              <thead>
                <tr>
                  <th scope="col">Topic</th>
                  <th scope="col">Received</th>
                  {!fixedSite && <th scope="col">Site</th>}
                  <th scope="col">Payload</th>
                </tr>
              </thead>
              <tbody>
                {rows.map((e) => (
                  <tr key={`${e.org_id} ${e.event_id}`}>
                    <td className="primary">
                      <button type="button" className="link" onClick={() => setOpen(e)}>
                        {e.topic}
                      </button>
                    </td>
                    <td data-label="Received">
                      <Clock at={e.received_at} />
                    </td>
                    {!fixedSite && (
                      <td data-label="Site">
                        <SiteLink id={e.site_id} />
                      </td>
                    )}
                    <td data-label="Payload">
                      <code className="clip payload">{JSON.stringify(e.payload)}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <div className="table-foot">
            <span role="status">
              {plural(rows.length, 'event')} loaded, {paused ? 'paused' : 'following the newest'}
            </span>
            {older}
          </div>
        </>
      )}
      {open && <EventDialog event={open} onClose={() => setOpen(undefined)} />}
    </>
  );
}

export function EventFacts({ event: e }: { event: EdgeEvent }) {
  return (
    <div className="stack">
      <Facts
        facts={[
          ['Topic', <code key="t">{e.topic}</code>],
          ['Site', <SiteLink key="s" id={e.site_id} />],
          ['Happened', <DateTime key="h" at={e.event_time} />],
          ['Received', <DateTime key="r" at={e.received_at} />],
          ['ID', <Copyable key="i" text={e.event_id} />],
        ]}
      />
      <JsonView label="Payload" value={e.payload} />
      {Object.keys(e.headers).length > 0 && <JsonView label="Headers" value={e.headers} />}
    </div>
  );
}

function EventDialog({ event, onClose }: { event: EdgeEvent; onClose: () => void }) {
  return (
    <Dialog title={`Event ${event.topic}`} onClose={onClose} wide>
      <div className="dialog-body">
        <EventFacts event={event} />
      </div>
    </Dialog>
  );
}
