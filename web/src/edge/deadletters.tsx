/** Events that could not be delivered: inspect, replay, discard. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { useParam } from '../ui/address';
import type { BulkAction } from '../ui/bulk';
import { body, page } from '../ui/client';
import { reason as reasonOf } from '../ui/problem';
import { useConfirm } from '../ui/confirm';
import { Dialog } from '../ui/dialog';
import { localDateTime } from '../ui/draft';
import { Card, Facts } from '../ui/facts';
import { FormDialog } from '../ui/form';
import type { MenuAction } from '../ui/menu';
import { Notice } from '../ui/notice';
import { count, plural } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Status } from '../ui/status';
import { Choice, Table, useServerList, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { Allowed, api, pageLimit, schemas, shortId, useMay, type DeadLetter } from './api';
import { EventFacts } from './event-list';
import { SiteLink } from './links';
import { SiteChoice } from './site-choice';
import { deadLetterReason } from './states';

function useRoutes() {
  const { data = [] } = useQuery({
    queryKey: ['routes', 'names'],
    queryFn: ({ signal }) => body(api.GET('/routes', { params: { query: { limit: pageLimit } }, signal })),
    staleTime: 30_000,
  });
  const options = data.map((r) => ({ value: r.id, label: r.name }));
  return { options, name: (id: string) => data.find((r) => r.id === id)?.name ?? `deleted route ${shortId(id)}` };
}

const reasons = ['exhausted', 'permanent', 'route_disabled', 'route_deleted'] as const;

export function DeadLetters() {
  const [route, setRoute] = useParam('route', '');
  const [site, setSite] = useParam('site', '');
  const [reason, setReason] = useParam<'' | DeadLetter['reason']>('reason', '', reasons);
  const { q } = useServerList();
  const [open, setOpen] = useState<DeadLetter>();
  const [asking, setAsking] = useState(false);
  const [replay, setReplay] = useState<Replay>();
  const routes = useRoutes();
  const { actions, bulk } = useDeadLetterActions();
  const query = { ...(route && { route_id: route }), ...(site && { site_id: site }), ...(reason && { reason }), ...(q && { q }) };
  const pages = usePages(['deadletters', 'list', query], (cursor, signal) => page(api.GET('/deadletters', { params: { query: { cursor, ...query } }, signal })), { refreshSeconds: 5 });

  const columns: Column<DeadLetter>[] = [
    {
      id: 'topic',
      header: 'Topic',
      cell: (d) => (
        <button type="button" className="link" onClick={() => setOpen(d)}>
          {d.event.topic}
        </button>
      ),
      sort: (d) => d.event.topic,
    },
    { id: 'status', header: 'Status', cell: (d) => <DeadLetterState letter={d} />, sort: (d) => d.status },
    { id: 'route', header: 'Route', cell: (d) => <Link href={`/routes/${encodeURIComponent(d.route_id)}`}>{routes.name(d.route_id)}</Link>, text: (d) => routes.name(d.route_id) },
    { id: 'site', header: 'Site', cell: (d) => <SiteLink id={d.event.site_id} />, text: (d) => d.event.site_id },
    { id: 'error', header: 'Last error', cell: (d) => <span className="clip" title={d.last_error}>{d.last_error || deadLetterReason(d.reason)}</span>, text: (d) => `${d.last_error} ${deadLetterReason(d.reason)}` },
    { id: 'attempts', header: 'Attempts', cell: (d) => d.attempts, sort: (d) => d.attempts, end: true },
    { id: 'replays', header: 'Replays', cell: (d) => d.replay_count, sort: (d) => d.replay_count, end: true, hidden: true },
    { id: 'created', header: 'Since', cell: (d) => <Time at={d.created_at} />, sort: (d) => d.created_at, text: () => '' },
  ];
  return (
    <Page
      title="Dead letters"
      lead="Events that a route could not deliver. They are kept with the event, and can be sent again."
      actions={
        <Allowed operation="ReplayDeadLetters">
          <button type="button" className="btn btn-primary" onClick={() => setAsking(true)}>
            Replay many
          </button>
        </Allowed>
      }
    >
      <div className="stack">
        {replay && <ReplayProgress replay={replay} name={routes.name(replay.route)} onClose={() => setReplay(undefined)} />}
        <Card flush>
          <Table
            label="Dead letters"
            noun="dead letter"
            columns={columns}
            pages={pages}
            rowKey={(d) => d.id}
            actions={actions}
            bulk={bulk}
            server={{ search: 'Topic, error or event ID' }}
            tools={
              <>
                <Choice label="Route" value={route} options={[{ value: '', label: 'All routes' }, ...routes.options, ...(route && !routes.options.some((o) => o.value === route) ? [{ value: route, label: routes.name(route) }] : [])]} onChange={setRoute} />
                <SiteChoice value={site} onChange={setSite} />
                <Choice
                  label="Reason"
                  value={reason}
                  options={[{ value: '', label: 'Any reason' }, ...reasons.map((r) => ({ value: r, label: deadLetterReason(r) }))]}
                  onChange={setReason}
                />
              </>
            }
            empty={{ icon: 'letter', title: route || site || reason ? 'No dead letter matches' : 'No dead letters', text: 'Everything was delivered, or is still being tried.' }}
          />
        </Card>
      </div>
      {open && <LetterDialog letter={open} route={routes.name(open.route_id)} onClose={() => setOpen(undefined)} />}
      {asking && <ReplayDialog route={route} routes={routes.options} onClose={() => setAsking(false)} onReplay={setReplay} />}
    </Page>
  );
}

function DeadLetterState({ letter }: { letter: DeadLetter }) {
  return letter.status === 'replaying' ? <Status tone="info">replaying</Status> : <Status tone="bad">dead</Status>;
}

function useDeadLetterActions(): { actions: (letter: DeadLetter) => MenuAction[]; bulk: BulkAction<DeadLetter>[] } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const path = (letter: DeadLetter) => ({ params: { path: { id: letter.id } } });
  const refresh = () => queries.invalidateQueries({ queryKey: ['deadletters'] });
  const replay = (letter: DeadLetter) =>
    confirm({
      title: `Replay ${letter.event.topic}?`,
      body: <p>The event is sent to the route’s target again, with all its retries. The target may have seen it before: {plural(letter.attempts, 'attempt')} failed.</p>,
      action: 'Replay it',
      run: async () => {
        await api.POST('/deadletters/{id}/replay', path(letter));
        await refresh();
      },
      done: 'The event is on its way again.',
    });
  const remove = (letter: DeadLetter) =>
    confirm({
      title: `Delete the dead letter ${letter.event.topic}?`,
      body: <p>The dead letter is deleted: this event will never be delivered over this route.</p>,
      action: 'Delete the dead letter',
      danger: true,
      run: async () => {
        await api.DELETE('/deadletters/{id}', path(letter));
        await refresh();
      },
      done: 'The dead letter is deleted.',
    });
  return {
    actions: (letter) =>
      letter.status === 'dead'
        ? [
            ...(may('ReplayDeadLetter') && letter.reason !== 'route_deleted' ? [{ label: 'Replay', run: () => replay(letter) }] : []),
            ...(may('DeleteDeadLetter') ? [{ label: 'Delete', danger: true, run: () => remove(letter) }] : []),
          ]
        : [],
    bulk: [
      ...(may('ReplayDeadLetter')
        ? [
            {
              label: 'Replay',
              applies: (letter: DeadLetter) => letter.status === 'dead' && letter.reason !== 'route_deleted',
              body: 'The events are sent to their targets again, with all their retries. Targets may have seen them before.',
              run: (letter: DeadLetter) => api.POST('/deadletters/{id}/replay', path(letter)),
              after: refresh,
            },
          ]
        : []),
      ...(may('DeleteDeadLetter')
        ? [
            {
              label: 'Delete',
              applies: (letter: DeadLetter) => letter.status === 'dead',
              body: 'These events will never be delivered over these routes.',
              danger: true,
              run: (letter: DeadLetter) => api.DELETE('/deadletters/{id}', path(letter)),
              after: refresh,
            },
          ]
        : []),
    ],
  };
}

function LetterDialog({ letter, route, onClose }: { letter: DeadLetter; route: string; onClose: () => void }) {
  return (
    <Dialog title={`Dead letter ${letter.event.topic}`} onClose={onClose} wide>
      <div className="dialog-body stack">
        <Notice tone="bad">
          <strong className="sentence">{deadLetterReason(letter.reason)}</strong>{letter.last_error && `: ${letter.last_error}`}
        </Notice>
        <Facts
          facts={[
            ['Route', <Link key="r" href={`/routes/${encodeURIComponent(letter.route_id)}`}>{route}</Link>],
            ['Status', <DeadLetterState key="s" letter={letter} />],
            ['Attempts', letter.attempts > 0 ? count(letter.attempts) : 'none, it was never sent'],
            letter.last_status > 0 && ['Last answer', `HTTP ${letter.last_status}`],
            ['Replayed', plural(letter.replay_count, 'time')],
            ['Since', <Time key="t" at={letter.created_at} />],
          ]}
        />
        <EventFacts event={letter.event} />
      </div>
    </Dialog>
  );
}

interface Replay {
  route: string;
  /** The number of dead letters that matched when the replay was requested. */
  matched: number;
  /** The number of events that the route had delivered by then. */
  delivered: number;
}

function ReplayDialog({ route, routes, onClose, onReplay }: { route: string; routes: { value: string; label: string }[]; onClose: () => void; onReplay: (replay: Replay) => void }) {
  const queries = useQueryClient();
  return (
    <FormDialog<{ route_id: string; from?: string; to?: string }>
      title="Replay many dead letters"
      schema={schemas.ReplayDeadLetters}
      fields={[
        { name: 'route_id', label: 'Route', options: [{ value: '', label: 'Choose a route' }, ...routes] },
        { name: 'from', label: 'From', hint: 'Your time. Without a span: all of the route.' },
        { name: 'to', label: 'To', placeholder: localDateTime(new Date()) },
      ]}
      values={{ route_id: route }}
      action="Replay"
      onClose={onClose}
      onSubmit={async (input) => {
        const { delivered } = await routeStats(input.route_id);
        const { matched } = await body(api.POST('/deadletters/replay', { body: input }));
        onReplay({ route: input.route_id, matched, delivered });
        onClose();
        await queries.invalidateQueries({ queryKey: ['deadletters'] });
      }}
    >
      <p className="muted small">Every dead letter of the route in the span is sent to its target again, with all its retries. Those that fail again come back here.</p>
    </FormDialog>
  );
}

const progressMs = 1_000;

const routeStats = (id: string, signal?: AbortSignal) => body(api.GET('/routes/{id}/stats', { params: { path: { id } }, ...(signal && { signal }) }));

/**
 * Describes the progress of a replay by the route's counters since it started. Other events of the
 * route count too. So the text does not say when the replay ends: dead letters come and go while it
 * runs.
 */
export function replayText(replay: Pick<Replay, 'matched' | 'delivered'>, now: { delivered: number; pending: number }, name: string): string {
  if (replay.matched === 0) return `No dead letter of ${name} matched.`;
  const waiting = now.pending === 0 ? 'nothing waits now' : `${count(now.pending)} ${now.pending === 1 ? 'waits' : 'wait'}`;
  return `Replay of ${plural(replay.matched, 'dead letter')} of ${name}: since then the route has delivered ${plural(Math.max(0, now.delivered - replay.delivered), 'event')}, and ${waiting}. What fails again comes back to the list.`;
}

function ReplayProgress({ replay, name, onClose }: { replay: Replay; name: string; onClose: () => void }) {
  const stats = useQuery({ queryKey: ['routes', 'stats', replay.route, 'replay'], queryFn: ({ signal }) => routeStats(replay.route, signal), refetchInterval: progressMs });
  return (
    <Notice
      tone={stats.data && stats.data.pending > 0 ? 'info' : 'idle'}
      action={
        <button type="button" className="btn btn-small" onClick={onClose}>
          Close
        </button>
      }
    >
      <span role="status">{stats.data ? replayText(replay, stats.data, name) : stats.error ? reasonOf(stats.error) : 'The replay is asked for.'}</span>
    </Notice>
  );
}
