/** A deployment: desired, current and previous versions. */
import { useQuery } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts, Tags } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { words } from '../../ui/status';
import { DateTime, duration, Time } from '../../ui/time';
import { api, type Deployment } from '../api';
import { SiteLink } from '../links';
import { DeploymentState } from '../states';
import { useDeploymentActions } from './actions';
import { siteIsSilent } from './known';
import { portText } from './ports';
import { Trouble } from '../trouble';

const above = [{ title: 'Deployments', href: '/deployments' }];

export function DeploymentDetail({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const { actions, dialog } = useDeploymentActions(() => navigate('/deployments'));
  const deployment = useQuery({
    queryKey: ['deployments', 'one', id],
    queryFn: ({ signal }) => body(api.GET('/deployments/{id}', { params: { path: { id } }, signal })),
    refetchInterval: 3_000,
  });
  if (!deployment.data) {
    return (
      <Page title="Deployment" above={above}>
        {deployment.error ? <Failure error={deployment.error} retry={() => void deployment.refetch()} /> : <p className="muted">Loading…</p>}
      </Page>
    );
  }
  const d = deployment.data;
  return (
    <Page
      title={d.name}
      above={above}
      badge={<DeploymentState deployment={d} />}
      actions={<Menu label={`Actions for ${d.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(d)} />}
    >
      <div className="stack">
        <Trouble of={{ subject: id }} />
        {siteIsSilent(d) && (
          <Notice tone="warn">
            <strong>The site is {d.site_status}, so how the container does is not known.</strong> Its agent was last heard of <Time at={d.site_last_seen_at} />. What is shown is what it said then.
          </Notice>
        )}
        <State deployment={d} />
        <div className="grid">
          <Card title="What should run">
            <Facts
              facts={[
                ['Site', <SiteLink key="s" id={d.site_id} />],
                ['Should be', d.desired_state],
                ['Image', <Copyable key="i" text={d.image} />],
                ['Version', d.version],
                ['Ports', d.ports.length ? <span key="p" className="tags">{d.ports.map((p) => <span key={portText(p)} className="tag">{portText(p)}</span>)}</span> : <span key="p" className="muted">none</span>],
                ['Environment', <Tags key="e" labels={d.env} />],
                ['Fetch the image', words(d.pull_policy)],
                ['Start again', words(d.restart)],
              ]}
            />
          </Card>
          <div className="stack">
            <Card title="Revisions">
              <Facts
                facts={[
                  ['Wanted', d.revision],
                  ['Agent speaks of', d.observed_revision || <span className="muted">none yet</span>],
                  ['Before', d.previous ? <span key="p">{d.previous.version} <code>{d.previous.image}</code></span> : <span key="p" className="muted">nothing to go back to</span>],
                  ['Made', <DateTime key="m" at={d.created_at} />],
                  ['Changed', <Time key="c" at={d.updated_at} />],
                  ['ID', <Copyable key="i" text={d.id} />],
                ]}
              />
            </Card>
            <Card title="Health check">
              {d.health?.command.length ? (
                <Facts
                  facts={[
                    ['Command', <code key="c">{d.health.command.join(' ')}</code>],
                    ['Every', duration(d.health.interval_seconds)],
                    ['May take', duration(d.health.timeout_seconds)],
                    ['Unhealthy after', `${d.health.retries} failures in a row`],
                    ['Time to start', duration(d.health.start_period_seconds)],
                  ]}
                />
              ) : (
                <p className="muted">None. A container that keeps running counts as healthy.</p>
              )}
            </Card>
          </div>
        </div>
      </div>
      {dialog}
    </Page>
  );
}

function State({ deployment: d }: { deployment: Deployment }) {
  if (d.status === 'failed' || d.status === 'denied') {
    return (
      <Notice tone="bad">
        <strong>{d.status === 'denied' ? 'No policy pack allows the image.' : 'It does not run.'}</strong> {d.message}
      </Notice>
    );
  }
  if (d.status === 'rolled_back') {
    return (
      <Notice tone="warn">
        <strong>The agent went back to {d.version}.</strong> {d.message}
      </Notice>
    );
  }
  if (d.observed_revision < d.revision) {
    return <Notice tone="info">The site’s agent has not taken over revision {d.revision} yet. It does so when it is online. {d.message}</Notice>;
  }
  return d.message ? <Notice tone="idle">{d.message}</Notice> : null;
}
