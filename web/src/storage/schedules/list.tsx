/** What is done at regular times: create, change, pause, enable, delete. */
import { useDeferredValue, useState } from 'react';
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import type { MenuAction } from '../../ui/menu';
import { count } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Status, words } from '../../ui/status';
import { Choice, Table, type Column } from '../../ui/table';
import { EndTime, Time, useNow } from '../../ui/time';
import { Allowed, api, useMay, useSeesAll, type Bucket, type Schedule, type ScheduleKind } from '../api';
import { BucketName } from '../backups/columns';
import { groupPath, jobPath, useBuckets, VolumeLink } from '../links';
import { useLive, useRefresh } from '../live';
import type { Names } from '../names';
import { exactSpan } from '../spans';
import { ScheduleForm } from './form';
import { firstRun, specOf } from './spec';

const kinds: readonly ScheduleKind[] = ['snapshot', 'backup', 'verify', 'test_restore'];

const keepText = (s: Pick<Schedule, 'keep' | 'max_age_secs'>) => [s.keep > 0 && `the newest ${count(s.keep)}`, s.max_age_secs > 0 && `for ${exactSpan(s.max_age_secs)}`].filter(Boolean).join(', ') || 'all';

/** One whose time has come begins soon. */
function NextRun({ at }: { at: string | null }) {
  const now = useNow();
  return at !== null && Date.parse(at) <= now ? 'due' : <EndTime at={at} never="none" />;
}

const columnsWith = (names: Names, buckets: readonly Bucket[] | undefined): readonly Column<Schedule>[] => [
  { id: 'name', header: 'Schedule', cell: (s) => s.name, sort: (s) => s.name },
  { id: 'kind', header: 'What', cell: (s) => words(s.kind), sort: (s) => s.kind },
  {
    id: 'of',
    header: 'Of',
    cell: (s) => (s.group_id ? <Link href={groupPath({ id: s.group_id })}>{names.get(s.group_id) ?? s.group_id}</Link> : s.volume_id ? <VolumeLink id={s.volume_id} names={names} /> : ''),
    text: (s) => names.get(s.group_id ?? s.volume_id ?? '') ?? '',
  },
  { id: 'enabled', header: 'State', cell: (s) => (s.enabled ? <Status tone="ok">enabled</Status> : <Status tone="warn" icon="pause">paused</Status>), sort: (s) => (s.enabled ? 'enabled' : 'paused') },
  { id: 'every', header: 'Every', cell: (s) => <span className="nowrap">{exactSpan(s.every_secs)}</span>, sort: (s) => s.every_secs, text: () => '' },
  { id: 'keep', header: 'Keeps', cell: (s) => (s.kind === 'verify' || s.kind === 'test_restore' ? '' : keepText(s)), text: () => '' },
  { id: 'next', header: 'Next run', cell: (s) => <NextRun at={s.next_at} />, sort: (s) => s.next_at ?? '', text: () => '' },
  {
    id: 'last',
    header: 'Last run',
    cell: (s) => (
      <span className="stack-tight">
        {s.last_job_id ? (
          <Link href={jobPath({ id: s.last_job_id })}>
            <Time at={s.last_at} />
          </Link>
        ) : (
          <Time at={s.last_at} />
        )}
        {s.last_error !== '' && <span className="small bad">{s.last_error}</span>}
      </span>
    ),
    sort: (s) => s.last_at ?? '',
    text: (s) => s.last_error,
  },
  { id: 'bucket', header: 'Bucket', cell: (s) => s.bucket_id && <BucketName id={s.bucket_id} buckets={buckets} />, text: (s) => buckets?.find((b) => b.id === s.bucket_id)?.name ?? '', hidden: true },
  { id: 'tenant', header: 'Tenant', cell: (s) => s.tenant_id, sort: (s) => s.tenant_id, hidden: true },
];

export function Schedules() {
  const seesAll = useSeesAll();
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const { names } = useLive();
  const buckets = useBuckets().data;
  const [kind, setKind] = useParam<ScheduleKind | ''>('kind', '', kinds);
  const [volume, setVolume] = useParam('volume', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const [open, setOpen] = useState<{ schedule?: Schedule }>();
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(kind && { kind }), ...(volume && { volume_id: volume }), ...(wantedTenant && { tenant: wantedTenant }) };
  const pages = usePages(['schedules', 'list', query], (cursor, signal) => page(api.GET('/schedules', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 5 });
  const at = (s: Schedule) => ({ params: { path: { id: s.id } } });
  const change = (s: Schedule, enabled: boolean) =>
    confirm({
      title: `${enabled ? 'Enable' : 'Pause'} ${s.name}?`,
      body: <p>{enabled ? `It runs ${firstRun(s)}, and every ${exactSpan(s.every_secs)} from then on.` : 'Nothing more is begun by it, and nothing that it made is removed, until it is enabled. What runs goes on.'}</p>,
      action: enabled ? 'Enable the schedule' : 'Pause the schedule',
      run: async () => {
        await api.PUT('/schedules/{id}', { ...at(s), body: specOf(s, enabled) });
        await refresh();
      },
      done: `${s.name} is ${enabled ? 'enabled' : 'paused'}.`,
    });
  const remove = (s: Schedule) =>
    confirm({
      title: `Delete the schedule ${s.name}?`,
      body: <p>Nothing is done by it any more. What it made stays, and is not removed by its age or number any more.</p>,
      action: 'Delete the schedule',
      danger: true,
      run: async () => {
        await api.DELETE('/schedules/{id}', at(s));
        await refresh();
      },
      done: `${s.name} is deleted.`,
    });
  const actions = (s: Schedule): MenuAction[] => [
    ...(allowed('UpdateSchedule') ? [{ label: 'Change…', run: () => setOpen({ schedule: s }) }, { label: s.enabled ? 'Pause…' : 'Enable…', run: () => change(s, !s.enabled) }] : []),
    ...(allowed('DeleteSchedule') ? [{ label: 'Delete…', danger: true, run: () => remove(s) }] : []),
  ];
  const create = (
    <Allowed operation="CreateSchedule">
      <button type="button" className="btn btn-primary" onClick={() => setOpen({})}>
        Create a schedule
      </button>
    </Allowed>
  );
  return (
    <Page title="Schedules" lead="Snapshots, backups and checks at regular times. A run that was missed is made up for once." actions={create}>
      <Card flush>
        <Table
          label="Schedules"
          noun="schedule"
          columns={columnsWith(names, buckets).filter((c) => seesAll || c.id !== 'tenant')}
          pages={pages}
          rowKey={(s) => s.id}
          actions={actions}
          tools={
            <>
              <Choice label="What" value={kind} options={[{ value: '', label: 'All kinds' }, ...kinds.map((k) => ({ value: k, label: words(k) }))]} onChange={setKind} />
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
              {volume !== '' && (
                <button type="button" className="btn btn-small" onClick={() => setVolume('')}>
                  Only of {names.get(volume) ?? 'one volume'}: show all
                </button>
              )}
            </>
          }
          empty={Object.keys(query).length > 0 ? { icon: 'search', title: 'No schedule matches' } : { icon: 'refresh', title: 'There are no schedules', text: 'A schedule takes snapshots, makes backups or verifies them at regular times.', action: create }}
        />
      </Card>
      {open && <ScheduleForm {...(open.schedule && { schedule: open.schedule })} {...(volume && { volume })} onClose={() => setOpen(undefined)} />}
    </Page>
  );
}
