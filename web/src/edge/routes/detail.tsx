/** A route: its deliveries, its settings, and a test. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useLocation } from 'wouter';
import { body } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts, Tile } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Failure, Notice } from '../../ui/notice';
import { plural, short } from '../../ui/number';
import { Page } from '../../ui/page';
import { historyOf } from '../../ui/history';
import { HistoryCard, type HistoryPlot } from '../../ui/range';
import { DateTime, Time } from '../../ui/time';
import { Allowed, api, type Route } from '../api';
import { SiteLink } from '../links';
import { ratesOf, type Rates } from '../rates';
import { Breaker, RouteState } from '../states';
import { useRouteActions } from './actions';
import { RouteTestDialog } from './test-dialog';
import { Trouble } from '../trouble';

const above = [{ title: 'Routes', href: '/routes' }];

export function RouteDetail({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const { actions, dialog } = useRouteActions(() => navigate('/routes'));
  const [testing, setTesting] = useState(false);
  const route = useQuery({ queryKey: ['routes', 'one', id], queryFn: ({ signal }) => body(api.GET('/routes/{id}', { params: { path: { id } }, signal })), refetchInterval: 10_000 });
  if (!route.data) {
    return (
      <Page title="Route" above={above}>
        {route.error ? <Failure error={route.error} retry={() => void route.refetch()} /> : <p className="muted">Loading…</p>}
      </Page>
    );
  }
  const r = route.data;
  return (
    <Page
      title={r.name}
      above={above}
      badge={<RouteState route={r} />}
      actions={
        <>
          <Allowed operation="TestRoute">
            <button type="button" className="btn" onClick={() => setTesting(true)}>
              Send a test
            </button>
          </Allowed>
          <Menu label={`Actions for ${r.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(r)} />
        </>
      }
    >
      <div className="stack">
        <Trouble of={{ subject: id }} />
        {!r.enabled && r.disabled_reason && <Notice tone="bad">The control plane disabled this route: {r.disabled_reason}</Notice>}
        {r.delivery.state === 'blocked' && <Notice tone="bad">Nothing is sent over this route: {r.delivery.last_error}</Notice>}
        {r.delivery.state === 'failing' && <Notice tone="warn">The last attempt failed: {r.delivery.last_error}</Notice>}
        <Delivery route={r} />
        <Card title="Route">
          <Facts
            facts={[
              ['Topic', <code key="t">{r.topic}</code>],
              ['Target', <Copyable key="u" text={r.target_url}><span>{r.method} <code>{r.target_url}</code></span></Copyable>],
              ['Site', <SiteLink key="s" id={r.site_id} none="all sites" />],
              ['Retries', `${r.retry_max} after the first attempt, ${plural(r.timeout_seconds, 'second')} for each`],
              ['Made', <DateTime key="c" at={r.created_at} />],
              ['Changed', <Time key="m" at={r.updated_at} />],
              ['ID', <Copyable key="i" text={r.id} />],
            ]}
          />
        </Card>
      </div>
      {testing && <RouteTestDialog route={r} onClose={() => setTesting(false)} />}
      {dialog}
    </Page>
  );
}

const plots: readonly HistoryPlot<Rates>[] = [
  {
    title: 'Delivery per minute',
    label: 'Delivery per minute',
    unit: '/min',
    lines: [
      { label: 'Delivered', of: (r) => r.delivered * 60 },
      { label: 'Failed attempts', of: (r) => r.failed * 60, bad: true },
      { label: 'Dead letters', of: (r) => r.dead * 60, bad: true },
    ],
  },
];

function Delivery({ route }: { route: Route }) {
  const stats = useQuery({
    queryKey: ['routes', 'stats', route.id],
    queryFn: ({ signal }) => body(api.GET('/routes/{id}/stats', { params: { path: { id: route.id }, query: { minutes: 1 } }, signal })),
    refetchInterval: 5_000,
  });
  if (!stats.data) return stats.error ? <Failure error={stats.error} retry={() => void stats.refetch()} /> : <p className="muted">Loading…</p>;
  const s = stats.data;
  return (
    <>
      <div className="tiles">
        <Tile label="Pending" value={short(s.pending)} note="waiting or on their way" />
        <Tile label="Delivered" value={short(s.delivered)} note="since the route was made" />
        <Tile label="Failed attempts" value={short(s.failed_attempts)} note="retried unless refused" />
        <Tile label="Dead letters" value={short(s.dead_lettered)} note="in all, replayed ones too" href={`/deadletters?route=${encodeURIComponent(route.id)}`} />
      </div>
      {s.breaker !== 'closed' && (
        <Notice tone={s.breaker === 'open' ? 'bad' : 'warn'} action={<Link href={`/deadletters?route=${encodeURIComponent(route.id)}`}>Dead letters</Link>}>
          {s.breaker === 'open' ? 'The target has failed five times in a row, so it is left in peace for a while.' : 'A single delivery is being tried.'} Deliveries wait; one that succeeds closes the circuit.
          {s.last_error && (
            <>
              {' '}
              Last error: <strong>{s.last_error}</strong>
            </>
          )}
        </Notice>
      )}
      <HistoryCard<Rates>
        title="Delivery per minute"
        actions={<Breaker state={s.breaker} />}
        ranges={['1h', '6h', '24h', '2d']}
        source={{
          id: route.id,
          read: async (query, signal) => {
            const h = await body(api.GET('/history', { params: { query: { ...query, route_id: route.id } }, signal }));
            return historyOf(h.now, h.step_seconds, h.points, ratesOf);
          },
        }}
        plots={plots}
        empty="The first figures are there when the route is two minutes old."
      >
        <Facts
          facts={[
            ['Last success', <Time key="s" at={s.last_success_at} />],
            ['Last failure', <Time key="f" at={s.last_failure_at} />],
            s.last_error !== '' && ['Last error', s.last_error],
            s.last_status > 0 && ['Last answer', `HTTP ${s.last_status}`],
          ]}
        />
      </HistoryCard>
    </>
  );
}
