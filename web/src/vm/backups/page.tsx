/** All backups, and the policies by which they are made. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDeferredValue } from 'react';
import { useParam } from '../../ui/address';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Page } from '../../ui/page';
import { usePages, wholeList } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { EndTime, Time, timeZone } from '../../ui/time';
import { toast } from '../../ui/toast';
import { Allowed, api, schemas, useMay, useSeesAll, type BackupPolicy, type BackupPolicySpec } from '../api';
import { TagList } from '../vms/columns';
import { MakeBackup, useRefresh } from './forms';
import { retentionText, scheduleText } from './policy';
import { BackupTable } from './table';

export function Backups() {
  const [making, setMaking] = useState(false);
  const confirm = useConfirm();
  const refresh = useRefresh();
  const names = useQuery({ queryKey: ['vms', 'names'], queryFn: ({ signal }) => body(api.GET('/api/vms', { params: { query: { limit: 200 } }, signal })), enabled: making });
  const stats = useQuery({ queryKey: ['backups', 'stats'], queryFn: ({ signal }) => body(api.GET('/api/backups/stats', { signal })), refetchInterval: 15_000 }).data;
  const verify = () =>
    confirm({
      title: 'Read the whole repository back?',
      body: <p>A job reads every block of every backup, and compares it with what was stored. Backups that cannot be restored as they were get the state damaged. It may take hours, and reads as much as is stored{stats ? `: ${bytes(stats.total_size_bytes)}` : ''}.</p>,
      action: 'Verify the backups',
      run: async () => {
        await api.POST('/api/backups/verify');
        await refresh();
      },
      done: 'The verification is under way.',
    });
  return (
    <Page
      title="Backups"
      lead={stats ? `${stats.total_backups} finished, which take ${bytes(stats.total_size_bytes)} in the repository.` : 'Copies of disks as they were, outside of the hosts’ storage.'}
      actions={
        <>
          <Allowed operation="VerifyBackups">
            <button type="button" className="btn" onClick={verify}>
              Verify…
            </button>
          </Allowed>
          <Allowed operation="CreateBackup">
            <button type="button" className="btn btn-primary" onClick={() => setMaking(true)}>
              Create a backup
            </button>
          </Allowed>
        </>
      }
    >
      <Tabs
        label="Parts of backups"
        inAddress
        tabs={[
          { id: 'all', label: 'Backups', content: () => <All /> },
          { id: 'policies', label: 'Policies', content: () => <Policies /> },
        ]}
      />
      {making && <MakeBackup names={names.data?.items.map((v) => v.name) ?? []} onClose={() => setMaking(false)} />}
    </Page>
  );
}

function All() {
  const [vm, setVM] = useParam('vm', '');
  const wanted = useDeferredValue(vm.trim());
  const pages = usePages(['backups', 'list', wanted], (cursor, signal) => page(api.GET('/api/backups', { params: { query: { cursor, ...(wanted && { vm: wanted }) } }, signal })), { refreshSeconds: 3 });
  return (
    <Card flush>
      <div className="table-tools">
        <input className="input narrow" aria-label="VM, exactly" placeholder="VM, exactly" maxLength={63} value={vm} onChange={(e) => setVM(e.target.value)} />
      </div>
      <BackupTable label="Backups" at="" pages={pages} />
    </Card>
  );
}

const columns: readonly Column<BackupPolicy>[] = [
  { id: 'name', header: 'Policy', cell: (p) => p.name, sort: (p) => p.name },
  { id: 'enabled', header: 'State', cell: (p) => <Status tone={p.enabled ? 'ok' : 'idle'}>{p.enabled ? 'enabled' : 'disabled'}</Status>, text: (p) => (p.enabled ? 'enabled' : 'disabled') },
  { id: 'tags', header: 'VMs with a tag of', cell: (p) => <TagList tags={p.vm_tags} />, text: (p) => p.vm_tags.join(' ') },
  { id: 'schedule', header: 'When', cell: scheduleText, text: scheduleText },
  { id: 'keep', header: 'Keeps', cell: retentionText, text: retentionText },
  { id: 'next', header: 'Next', cell: (p) => <EndTime at={p.next_run} />, sort: (p) => p.next_run ?? '', text: () => '' },
  { id: 'last', header: 'Last', cell: (p) => (p.last_run ? <span><Time at={p.last_run} />: {p.last_result}</span> : <span className="muted">never</span>), text: (p) => p.last_result },
  { id: 'tenant', header: 'Tenant', cell: (p) => p.tenant ?? '', text: (p) => p.tenant ?? '', hidden: true },
];

function Policies() {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [open, setOpen] = useState<{ policy?: BackupPolicy }>();
  const { data, error, refetch } = useQuery({ queryKey: ['backups', 'policies'], queryFn: ({ signal }) => body(api.GET('/api/backups/policies', { signal })), refetchInterval: 10_000 });
  const remove = (p: BackupPolicy) =>
    confirm({
      title: `Delete the policy ${p.name}?`,
      body: <p>No more backups are made by it. Those that it has made stay until they expire.</p>,
      action: 'Delete the policy',
      danger: true,
      run: async () => {
        await api.DELETE('/api/backups/policies/{policy}', { params: { path: { policy: p.id } } });
        await refresh();
      },
      done: `The policy ${p.name} is deleted.`,
    });
  const add = (
    <Allowed operation="CreateBackupPolicy">
      <button type="button" className="btn btn-primary" onClick={() => setOpen({})}>
        Add a policy
      </button>
    </Allowed>
  );
  return (
    <Card title="Backup policies" actions={add} flush>
      <Table
        at="policies."
        label="Backup policies"
        noun="policy"
        nouns="policies"
        columns={columns}
        pages={wholeList(data, data ? undefined : (error ?? undefined), () => void refetch())}
        rowKey={(p) => p.id}
        {...(allowed('UpdateBackupPolicy') && {
          actions: (p: BackupPolicy) => [
            { label: 'Change…', run: () => setOpen({ policy: p }) },
            { label: 'Delete…', danger: true, run: () => remove(p) },
          ],
        })}
        empty={{ icon: 'clock', title: 'There are no policies', text: 'A policy backs up the VMs that have one of its tags, every day, week or month.' }}
      />
      {open && <PolicyForm {...open} onClose={() => setOpen(undefined)} />}
    </Card>
  );
}

function PolicyForm({ policy, onClose }: { policy?: BackupPolicy; onClose: () => void }) {
  const seesAll = useSeesAll();
  const refresh = useRefresh();
  return (
    <FormDialog<BackupPolicySpec>
      title={policy ? `Change the policy ${policy.name}` : 'Add a backup policy'}
      two
      wide
      schema={policy ? schemas.UpdateBackupPolicy : schemas.CreateBackupPolicy}
      fields={[
        { name: 'name', label: 'Name' },
        { name: 'vm_tags', label: 'Tags', hint: 'One a line. VMs with one of them are backed up.' },
        { name: 'schedule_type', label: 'Every', options: [{ value: 'daily', label: 'Day' }, { value: 'weekly', label: 'Week' }, { value: 'monthly', label: 'Month' }] },
        { name: 'time', label: 'At', placeholder: '02:00', hint: 'Hours and minutes' },
        { name: 'timezone', label: 'Time zone', suggestions: Intl.supportedValuesOf('timeZone'), hint: `As in the IANA database. This browser’s is ${timeZone()}.` },
        { name: 'weekday', label: 'On', when: (d) => d['schedule_type'] === 'weekly' },
        { name: 'day', label: 'Day of the month', hint: 'In shorter months, the last day', when: (d) => d['schedule_type'] === 'monthly' },
        { name: 'backup_type', label: 'Reads', options: [{ value: 'incremental', label: 'What has changed' }, { value: 'full', label: 'The whole disk' }] },
        { name: 'retention_days', label: 'Expire after days', hint: 'Not by age, when empty or 0' },
        { name: 'keep_last', label: 'Keep the newest', hint: 'With any number to keep, what none of them keeps is removed after a run' },
        { name: 'keep_daily', label: 'Keep one a day, of days', hint: '' },
        { name: 'keep_weekly', label: 'Keep one a week, of weeks', hint: '' },
        { name: 'keep_monthly', label: 'Keep one a month, of months', hint: '' },
        ...(seesAll && !policy ? [{ name: 'tenant', label: 'Tenant', hint: 'Of all tenants, when empty' }] : []),
        { name: 'enabled', label: 'Enabled' },
      ]}
      values={policy ?? { timezone: timeZone(), backup_type: 'incremental', schedule_type: 'daily' }}
      prepare={(input) => (policy?.tenant ? { ...input, tenant: policy.tenant } : input)}
      preview={(input) => (input.schedule_type && input.time && input.timezone ? <p className="muted small">{scheduleText({ weekday: 'sunday', day: 1, ...input } as BackupPolicy)}. A run that is missed is made up for, once.</p> : null)}
      action={policy ? 'Save the policy' : 'Add the policy'}
      onClose={onClose}
      onSubmit={async (input) => {
        if (policy) await api.PUT('/api/backups/policies/{policy}', { params: { path: { policy: policy.id } }, body: input });
        else await api.POST('/api/backups/policies', { body: input });
        toast(`The policy ${input.name} is ${policy ? 'changed' : 'added'}.`);
        onClose();
        await refresh();
      }}
    />
  );
}
