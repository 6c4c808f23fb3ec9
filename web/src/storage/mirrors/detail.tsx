/** A mirror: what both sites say about it, whether it can take over, and what to do. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { wholeList } from '../../ui/paging';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { DateTime, Time } from '../../ui/time';
import { Absent } from '../absent';
import { api, pageLimit, type DRStep, type Mirror, type MirrorSite } from '../api';
import { Busy } from '../jobs';
import { VolumeLink } from '../links';
import { useLive } from '../live';
import { exactSpan } from '../spans';
import { Health, MirrorStatus, underWay } from '../states';
import { useMirrorActions } from './actions';
import { CopyAge, useSite } from './list';

const list = { title: 'Mirrors', href: '/mirrors' };

const siteColumns: readonly Column<MirrorSite>[] = [
  { id: 'name', header: 'Site', cell: (s) => s.name || 'this one' },
  { id: 'up', header: 'Daemon', cell: (s) => <Status tone={s.up ? 'ok' : 'bad'}>{s.up ? 'runs' : 'does not run'}</Status> },
  { id: 'state', header: 'State', cell: (s) => s.state },
  { id: 'description', header: 'Says', cell: (s) => <span className="wide-cell">{s.description}</span> },
  { id: 'at', header: 'When', cell: (s) => <Time at={s.updated_at} /> },
];

const stepColumns: readonly Column<DRStep>[] = [
  { id: 'title', header: 'Step', cell: (s) => s.title },
  { id: 'why', header: 'Why', cell: (s) => <span className="wide-cell">{s.detail}</span> },
  { id: 'command', header: 'On the command line', cell: (s) => (s.command ? <Copyable text={s.command} /> : null) },
];

export function MirrorDetail({ id }: { id: string }) {
  const site = useSite();
  const { jobs, names } = useLive();
  const { actions, dialog } = useMirrorActions(site);
  const all = useQuery({ queryKey: ['mirrors', 'all'], queryFn: ({ signal }) => body(api.GET('/dr/mirrors', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 5_000 });
  const m = all.data?.find((one) => one.id === id);
  if (!m) {
    return all.data ? (
      <Page title="Mirror" above={[list]}>
        <Notice tone="warn">There is no such mirror among the newest {pageLimit}. Its mirroring may have ended.</Notice>
      </Page>
    ) : (
      <Absent noun="mirror" list={list} query={all} />
    );
  }
  const job = jobs?.find((j) => underWay(j) && j.resource.id === m.id);
  const r = m.last_rehearsal;
  return (
    <Page
      title={m.image}
      above={[list]}
      lead={`${m.role === 'primary' ? 'Written to' : 'A copy'} at ${site(m.cluster_id)}${m.tenant_id ? `, of the tenant ${m.tenant_id}` : ''}`}
      actions={<Menu label={`Actions for ${m.image}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(m)} />}
    >
      <div className="stack">
        {job && <Busy key={job.id} job={job} />}
        <State mirror={m} />
        <Card title="Mirror">
          <Facts
            facts={[
              ['State', <MirrorStatus key="s" mirror={m} />],
              m.last_error !== '' && ['Last error', m.last_error],
              ['Volume', <VolumeLink key="v" id={m.volume_id} names={names} />],
              ['Age of the copy', <CopyAge key="a" mirror={m} />],
              ['It may be', m.rpo_seconds > 0 ? `${exactSpan(m.rpo_seconds)} old` : <span key="n" className="muted">nothing is said</span>],
              ['Changes are sent', m.mode === 'journal' ? 'each at once, by a journal' : 'by snapshots'],
              ['Last rehearsal', r ? <span key="r"><Status tone={r.ok ? 'ok' : 'bad'}>{r.ok ? 'passed' : 'failed'}</Status> <DateTime at={r.at} />: {r.detail}</span> : <span key="r" className="muted">never</span>],
              ['ID', <Copyable key="i" text={m.id} />],
            ]}
          />
        </Card>
      </div>
      {dialog}
    </Page>
  );
}

/** What both sites say now, and the steps for the case at hand. */
function State({ mirror: m }: { mirror: Mirror }) {
  const status = useQuery({ queryKey: ['mirrors', 'status', m.id], queryFn: ({ signal }) => body(api.GET('/dr/mirrors/{id}/status', { params: { path: { id: m.id } }, signal })), refetchInterval: 10_000 });
  const preflight = useQuery({ queryKey: ['mirrors', 'preflight', m.id], queryFn: ({ signal }) => body(api.GET('/dr/preflight', { params: { query: { mirror_id: m.id } }, signal })), refetchInterval: 15_000 });
  const s = status.data;
  const steps = preflight.data?.steps ?? [];
  return (
    <>
      <Card title="What both sites say" flush>
        {status.error && !s ? (
          <Failure error={status.error} retry={() => void status.refetch()} />
        ) : !s ? (
          <p className="muted card-body">Both sites are asked…</p>
        ) : (
          <>
            <div className="card-body stack-tight">
              <div>
                <Health condition={s.health} />
              </div>
              {s.role === 'secondary' && (s.promote_ready ? <Notice tone="ok">It can be promoted here.</Notice> : <Notice tone="info">It cannot be promoted here now: {s.promote_blocker}.</Notice>)}
              {s.role === 'unknown' && <Notice tone="bad">{s.promote_blocker}.</Notice>}
            </div>
            <Table brief label="Sites" noun="site" columns={siteColumns} pages={wholeList(s.sites, undefined, () => void status.refetch())} rowKey={(one) => one.name} empty={{ icon: 'site', title: 'No daemon has said anything yet' }} />
          </>
        )}
      </Card>
      {steps.length > 0 && (
        <Card title="What to do in this case" flush>
          <Table brief label="Steps" noun="step" columns={stepColumns} pages={wholeList(steps, undefined, () => void preflight.refetch())} rowKey={(one) => one.title} empty={{ icon: 'check', title: 'Nothing' }} />
        </Card>
      )}
    </>
  );
}
