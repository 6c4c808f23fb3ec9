/** An overview of the fleet: counts by state, current rates, alerts, and activity. */
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { Link } from 'wouter';
import { body } from '../ui/client';
import { Card, Tile } from '../ui/facts';
import { Empty, Failure, Notice } from '../ui/notice';
import { count, short } from '../ui/number';
import { Page } from '../ui/page';
import { historyOf } from '../ui/history';
import { HistoryCard, type HistoryPlot } from '../ui/range';
import { ActivityList } from './activity-list';
import { alertGroups, firingKinds } from './alert-groups';
import { AlertGroups } from './alert-list';
import { Allowed, api, type Overview } from './api';
import { FirstSteps, hasRoute, isEmptyFleet, type FirstStep } from './first-steps';
import { useLive } from './live';
import { campaignsHref, campaignsNote, deploymentsHref, deploymentsNote, devicesHref, devicesNote, routesHref, routesNote } from './notes';
import { ratesOf, type Rates } from './rates';
import { RouteDialog } from './routes/form';
import { EnrollDialog } from './sites/enroll';

const shownActivity = 10;

export function OverviewPage() {
  const { overview, overviewError } = useLive();
  // The dialog stays open when the first steps disappear: the site that it waits for ends them.
  const [step, setStep] = useState<FirstStep>();
  if (overviewError !== undefined) {
    return (
      <Page title="Overview">
        <Failure error={overviewError} />
      </Page>
    );
  }
  if (!overview) return <Page title="Overview">{<Tiles />}</Page>;
  return (
    <>
      {isEmptyFleet(overview) ? (
        <Page title="Welcome" lead="This control plane has no sites yet. Three steps bring it to life.">
          <FirstSteps overview={overview} onStep={setStep} />
        </Page>
      ) : (
        <AtWork overview={overview} onStep={setStep} />
      )}
      {step === 'enroll' && <EnrollDialog onClose={() => setStep(undefined)} />}
      {step === 'route' && <RouteDialog onClose={() => setStep(undefined)} />}
    </>
  );
}

function AtWork({ overview, onStep }: { overview: Overview; onStep: (step: FirstStep) => void }) {
  const { activity } = useLive();
  return (
    <Page title="Overview">
      <div className="stack">
        {!hasRoute(overview) && (
          <Allowed operation="CreateRoute">
            <Notice
              tone="info"
              action={
                <button type="button" className="btn btn-small" onClick={() => onStep('route')}>
                  Create a route
                </button>
              }
            >
              There is no route yet: events are kept, but delivered nowhere.
            </Notice>
          </Allowed>
        )}
        <Tiles overview={overview} />
        <Traffic />
        <div className="grid">
          <AlertsNow overview={overview} />
          <Card title="Latest activity" actions={<Link href="/activity">All activity</Link>} flush>
            {activity?.length ? <ActivityList entries={activity.slice(0, shownActivity)} /> : <Empty icon="activity" title="Nothing has happened yet" />}
          </Card>
        </div>
      </div>
    </Page>
  );
}

function Tiles({ overview: o }: { overview?: Overview }) {
  if (!o) {
    return (
      <div className="tiles">
        {['Sites online', 'Devices', 'Deployments up', 'Campaigns running', 'Deliveries pending', 'Dead letters'].map((label) => (
          <Tile key={label} label={label} value={<span className="skeleton" />} />
        ))}
      </div>
    );
  }
  const offline = o.sites['offline'] ?? 0;
  const enrolled = Object.values(o.sites).reduce((a, b) => a + b, 0) - (o.sites['revoked'] ?? 0);
  return (
    <div className="tiles">
      <Tile href={offline ? '/sites?status=offline' : '/sites'} label="Sites online" value={`${count(o.sites['online'] ?? 0)} of ${count(enrolled)}`} note={offline ? `${count(offline)} offline` : 'none offline'} bad={offline > 0} />
      <Tile href={devicesHref(o)} label="Devices" {...devicesNote(o)} />
      <Tile href={deploymentsHref(o)} label="Deployments up" {...deploymentsNote(o)} />
      <Tile href={campaignsHref(o)} label="Campaigns running" {...campaignsNote(o)} />
      <Tile href={routesHref(o)} label="Deliveries pending" value={short(o.deliveries_pending)} {...routesNote(o)} />
      <Tile href="/deadletters" label="Dead letters" value={short(o.deadletters)} note={o.deadletters ? 'not delivered' : 'all delivered'} bad={o.deadletters > 0} />
    </div>
  );
}

const plots: readonly HistoryPlot<Rates>[] = [
  { title: 'Events', label: 'Events of the fleet', unit: '/s', lines: [{ label: 'Accepted', of: (r) => r.events }] },
  {
    title: 'Deliveries',
    label: 'Deliveries of the fleet',
    unit: '/s',
    lines: [
      { label: 'Delivered', of: (r) => r.delivered },
      { label: 'Failed attempts', of: (r) => r.failed, bad: true },
      { label: 'Dead letters', of: (r) => r.dead, bad: true },
    ],
  },
];

function Traffic() {
  const { samples } = useLive();
  const measured = useMemo(() => samples.map(({ at, ...values }) => ({ at, values })), [samples]);
  return (
    <HistoryCard<Rates>
      title="Events and deliveries"
      ranges={['1h', '6h', '24h', '2d']}
      source={{
        id: 'fleet',
        read: async (query, signal) => {
          const h = await body(api.GET('/history', { params: { query }, signal }));
          return historyOf(h.now, h.step_seconds, h.points, ratesOf);
        },
        measured,
      }}
      plots={plots}
      empty="Measuring. The first rates are there in a few seconds."
    />
  );
}

/** The number of alerts per kind that are listed. The others are only counted. */
const named = 3;

function AlertsNow({ overview }: { overview: Overview }) {
  const kinds = firingKinds(overview);
  const alerts = useQuery({
    queryKey: ['alerts', 'now', kinds],
    queryFn: async ({ signal }) => (await Promise.all(kinds.map((kind) => body(api.GET('/alerts', { params: { query: { kind, limit: named } }, signal }))))).flat(),
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  const groups = alertGroups(overview.alerts, alerts.data ?? []);
  return (
    <Card title="Needs attention" actions={<Link href="/alerts">All alerts</Link>} flush>
      {alerts.error && !alerts.data ? (
        <div className="card-body">
          <Failure error={alerts.error} retry={() => void alerts.refetch()} />
        </div>
      ) : groups.length > 0 ? (
        <AlertGroups groups={groups} />
      ) : alerts.data ? (
        <Empty icon="check" title="All is well">
          No alert is firing.
        </Empty>
      ) : (
        <div className="card-body">
          <span className="skeleton" />
        </div>
      )}
    </Card>
  );
}
