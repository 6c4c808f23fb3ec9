/** A list of backups with their actions. */
import { useState } from 'react';
import { useLocation } from 'wouter';
import { useConfirm } from '../../ui/confirm';
import { Dialog } from '../../ui/dialog';
import { Copyable } from '../../ui/copy';
import { Facts } from '../../ui/facts';
import { Notice } from '../../ui/notice';
import type { Pages } from '../../ui/paging';
import { Meter } from '../../ui/progress';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { DateTime, EndTime, Time } from '../../ui/time';
import { api, useMay, type Backup } from '../api';
import { useCancel } from '../jobs';
import { useLive } from '../live';
import { BackupState, consistencyText } from '../states';
import { leftOutText } from './left-out';
import { ProtectBackup, RestoreBackup, useRefresh } from './forms';

/** Whether nobody can remove the backup now. */
export const isProtected = (b: Pick<Backup, 'protected_until'>, now: number) => b.protected_until !== undefined && Date.parse(b.protected_until) > now;

/** How far a backup is that is being made. */
function Progress({ backup: b }: { backup: Backup }) {
  const job = useLive().jobs?.find((j) => j.id === b.job_id);
  return job && (b.status === 'running' || b.status === 'pending') ? <Meter progress={job.progress} failed={job.status === 'failed'} /> : null;
}

const columns: readonly Column<Backup>[] = [
  { id: 'created', header: 'Made', cell: (b) => <DateTime at={b.created} />, sort: (b) => b.created, text: (b) => b.created },
  { id: 'vm', header: 'VM', cell: (b) => b.vm_name, sort: (b) => b.vm_name },
  {
    id: 'status',
    header: 'State',
    cell: (b) => (
      <span className="stack-tight">
        <span className="row">
          <BackupState backup={b} />
          {isProtected(b, Date.now()) && (
            <Status tone="info" icon="policy">
              protected
            </Status>
          )}
        </span>
        {b.left_out.length > 0 && <span className="muted small">Without {b.left_out.join(', ')}</span>}
        <Progress backup={b} />
      </span>
    ),
    sort: (b) => b.status,
  },
  { id: 'type', header: 'Read', cell: (b) => (b.finished ? `${b.backup_type}, ${bytes(b.read_bytes)}` : b.backup_type), text: (b) => b.backup_type },
  { id: 'size', header: 'Added', cell: (b) => (b.finished ? bytes(b.size_bytes) : ''), sort: (b) => b.size_bytes, text: () => '' },
  { id: 'expires', header: 'Expires', cell: (b) => <EndTime at={b.expires_at} />, sort: (b) => b.expires_at ?? '', text: () => '' },
  { id: 'verified', header: 'Read back', cell: (b) => <Time at={b.verified} />, sort: (b) => b.verified ?? '', text: () => '' },
  { id: 'boot', header: 'Booted', cell: (b) => b.boot && <BootResult boot={b.boot} />, text: (b) => b.boot?.status ?? '', hidden: true },
  { id: 'description', header: 'Description', cell: (b) => b.description, text: (b) => b.description, hidden: true },
  { id: 'tenant', header: 'Tenant', cell: (b) => b.tenant ?? '', text: (b) => b.tenant ?? '', hidden: true },
];

interface Asked {
  what: 'restore' | 'protect' | 'look';
  backup: Backup;
}

export function BackupTable({ label, pages, at, brief = false, onRestoring }: { label: string; pages: Pages<Backup>; at: string; brief?: boolean; onRestoring?: (vm: string) => void }) {
  const confirm = useConfirm();
  const allowed = useMay();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const cancel = useCancel();
  const { jobs } = useLive();
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const remove = (b: Backup) =>
    confirm({
      title: `Delete this backup of ${b.vm_name}?`,
      body: (
        <p>
          The backup of <DateTime at={b.created} /> cannot be restored any more. Others do not depend on it. What it takes is freed within hours.
        </p>
      ),
      action: 'Delete the backup',
      danger: true,
      run: async () => {
        await api.DELETE('/api/backups/{id}', { params: { path: { id: b.id } } });
        await refresh();
      },
      done: 'The backup is deleted.',
    });
  const boot = (b: Backup) =>
    confirm({
      title: `Boot this backup of ${b.vm_name}?`,
      body: <p>A VM without a network starts from it, until the agent of its guest answers, and is removed. Nothing is restored. One backup a week is booted anyway.</p>,
      action: 'Boot the backup',
      run: async () => {
        await api.POST('/api/backups/{id}/boot', { params: { path: { id: b.id } } });
        await refresh();
      },
      done: 'The backup is being booted.',
    });
  const actions = (b: Backup) => {
    const job = jobs?.find((j) => j.id === b.job_id);
    const making = b.status === 'pending' || b.status === 'running';
    return [
      { label: 'Details', run: () => setAsked({ what: 'look', backup: b }) },
      ...(b.status === 'completed' && allowed('RestoreBackup') ? [{ label: 'Restore…', run: () => setAsked({ what: 'restore', backup: b }) }] : []),
      ...(b.status === 'completed' && allowed('OpenBackupVolumes') ? [{ label: 'Files', run: () => navigate(`/backups/${encodeURIComponent(b.id)}/files`) }] : []),
      ...(b.status === 'completed' && allowed('BootBackup') ? [{ label: 'Boot…', run: () => boot(b) }] : []),
      ...(making && job && allowed('CancelJob') ? [{ label: 'Cancel', danger: true, run: () => void cancel(job) }] : []),
      ...(b.status === 'completed' && allowed('ProtectBackup') ? [{ label: 'Protect…', run: () => setAsked({ what: 'protect', backup: b }) }] : []),
      ...(!making && !isProtected(b, Date.now()) && allowed('DeleteBackup') ? [{ label: 'Delete…', danger: true, run: () => remove(b) }] : []),
    ];
  };
  return (
    <>
      <Table
        brief={brief}
        at={at}
        label={label}
        noun="backup"
        columns={brief ? columns.filter((c) => c.id !== 'vm') : columns}
        pages={pages}
        rowKey={(b) => b.id}
        actions={actions}
        empty={{ icon: 'deployment', title: 'There are no backups', text: 'A backup keeps the disk and the settings of a VM as at one moment, outside of its host’s storage, and stays when the VM is deleted.' }}
      />
      {asked?.what === 'restore' && <RestoreBackup backup={asked.backup} onClose={close} {...(onRestoring && { onBegun: onRestoring })} />}
      {asked?.what === 'protect' && <ProtectBackup backup={asked.backup} onClose={close} />}
      {asked?.what === 'look' && <Look backup={asked.backup} onClose={close} />}
    </>
  );
}

const boots = { passed: { tone: 'ok', text: 'its agent answered' }, failed: { tone: 'bad', text: 'it did not boot' }, untried: { tone: 'warn', text: 'could not be tried' } } as const;

/** How the last trial boot of a backup ended. */
function BootResult({ boot }: { boot: NonNullable<Backup['boot']> }) {
  const { tone, text } = boots[boot.status];
  return (
    <span>
      <Status tone={tone}>{text}</Status> <Time at={boot.at} />
      {boot.error !== '' && <>: {boot.error}</>}
    </span>
  );
}

function Look({ backup: b, onClose }: { backup: Backup; onClose: () => void }) {
  return (
    <Dialog title={`Backup of ${b.vm_name}`} onClose={onClose}>
      <div className="dialog-body stack-tight">
        {b.left_out.length > 0 && <Notice tone="info">{leftOutText(b)}</Notice>}
        <Facts
          facts={[
            ['State', <BackupState key="s" backup={b} />],
            b.error !== '' && ['Why', b.error],
            ['Made', <DateTime key="m" at={b.created} />],
            b.finished !== undefined && ['Finished', <DateTime key="f" at={b.finished} />],
            ['Disk', bytes(b.disk_bytes)],
            ['Read of it', bytes(b.read_bytes)],
            ['Added to the repository', bytes(b.size_bytes)],
            ['Consistency', b.consistency ? consistencyText(b.consistency) : <span key="c" className="muted">not known yet</span>],
            ['Read back', <Time key="v" at={b.verified} />],
            b.boot !== undefined && ['Booted', <BootResult key="b" boot={b.boot} />],
            ['Expires', <EndTime key="e" at={b.expires_at} />],
            b.protected_until !== undefined && ['Protected until', <DateTime key="p" at={b.protected_until} />],
            b.description !== '' && ['Description', b.description],
            b.storage_location ? ['Stored at', <code key="l">{b.storage_location}</code>] : null,
            ['ID', <Copyable key="i" text={b.id} />],
          ]}
        />
      </div>
    </Dialog>
  );
}
