/** The states of backends, volumes, snapshots, jobs and alerts with their texts and colours, and what each state allows. */
import { Status, words, type Tone } from '../ui/status';
import type { Alert, Backend, BackendStatus, Backup, BackupState, Bucket, BucketState, Condition, Job, JobState, Mirror, Severity, Snapshot, SnapshotState, Volume, VolumeState } from './api';

const conditions: Record<Condition, Tone> = { ok: 'ok', warning: 'warn', error: 'bad', unknown: 'idle' };

/** From the best to the worst. What is not known is worse than a warning, and no failure. */
const ranks: readonly Condition[] = ['ok', 'warning', 'unknown', 'error'];

/** The worst of several conditions. Undefined if there are none. */
export function worst(all: readonly Condition[]): Condition | undefined {
  return [...all].sort((a, b) => ranks.indexOf(b) - ranks.indexOf(a))[0];
}

export const Health = ({ condition }: { condition: Condition }) => <Status tone={conditions[condition]}>{condition}</Status>;

const backendTones: Record<BackendStatus, Tone> = { pending: 'idle', ready: 'ok', unreachable: 'bad', cordoned: 'warn' };
const backendTexts: Record<BackendStatus, string> = { pending: 'not discovered yet', ready: 'ready', unreachable: 'does not answer', cordoned: 'cordoned' };

export const backendText = (b: Pick<Backend, 'status'>) => backendTexts[b.status];

/** A backend that is cordoned may not answer, either: the API says one of the two, this says both. */
export function BackendState({ backend: b }: { backend: Pick<Backend, 'status' | 'last_error'> }) {
  return (
    <span className="tags">
      <Status tone={backendTones[b.status]} {...(b.status === 'cordoned' && { icon: 'pause' })}>
        {backendText(b)}
      </Status>
      {b.status === 'cordoned' && b.last_error !== '' && <Status tone="bad">{backendTexts.unreachable}</Status>}
    </span>
  );
}

const volumeTones: Record<VolumeState, Tone> = {
  creating: 'info',
  available: 'ok',
  'in-use': 'ok',
  expanding: 'info',
  restoring: 'info',
  maintenance: 'info',
  deleting: 'info',
  error: 'bad',
  error_deleting: 'bad',
  error_expanding: 'bad',
  missing: 'bad',
};

export const volumeStates = Object.keys(volumeTones) as VolumeState[];

const volumeTexts: Partial<Record<VolumeState, string>> = { 'in-use': 'in use', error_deleting: 'not deleted', error_expanding: 'not expanded' };

export const volumeText = (state: VolumeState) => volumeTexts[state] ?? words(state);

export const VolumeStatus = ({ volume }: { volume: Pick<Volume, 'state'> }) => <Status tone={volumeTones[volume.state]}>{volumeText(volume.state)}</Status>;

/** The states that somebody must look at. */
export const troubled = volumeStates.filter((s) => volumeTones[s] === 'bad');

export type Verb = 'expand' | 'snapshot' | 'backup' | 'change' | 'rollback' | 'move' | 'trash' | 'delete';

const readable: readonly VolumeState[] = ['available', 'in-use', 'maintenance', 'expanding', 'error_expanding'];

const verbs: Record<Verb, readonly VolumeState[]> = {
  expand: ['available', 'in-use', 'error_expanding'],
  snapshot: readable,
  backup: readable,
  change: ['available', 'in-use'],
  rollback: ['available', 'error'],
  move: ['available', 'missing'],
  trash: ['available', 'error_deleting', 'error_expanding'],
  delete: ['available', 'error', 'error_deleting', 'error_expanding', 'missing'],
};

/** The actions that make sense for a volume or an image now. The service makes the final decision. What it did not make, it only shows. */
export const may = (v: Pick<Volume, 'state' | 'managed'>, verb: Verb) => v.managed && verbs[verb].includes(v.state);

const snapshotTones: Record<SnapshotState, Tone> = { creating: 'info', ready: 'ok', deleting: 'info', error: 'bad' };

export const SnapshotStatus = ({ snapshot }: { snapshot: Pick<Snapshot, 'state'> }) => <Status tone={snapshotTones[snapshot.state]}>{snapshot.state}</Status>;

const backupTones: Record<BackupState, Tone> = { pending: 'idle', uploading: 'info', verifying: 'info', completed: 'ok', failed: 'bad', deleting: 'info' };

export const backupStates = Object.keys(backupTones) as BackupState[];

export const BackupStatus = ({ backup }: { backup: Pick<Backup, 'state'> }) => <Status tone={backupTones[backup.state]}>{backup.state}</Status>;

const bucketTones: Record<BucketState, Tone> = { pending: 'info', bound: 'ok', deleting: 'info', error: 'bad' };

export const bucketStates = Object.keys(bucketTones) as BucketState[];

export const BucketStatus = ({ bucket }: { bucket: Pick<Bucket, 'state'> }) => <Status tone={bucketTones[bucket.state]}>{bucket.state}</Status>;

const mirrorTones: Record<Mirror['state'], Tone> = { enabling: 'info', enabled: 'ok', disabling: 'info', error: 'bad' };

export const MirrorStatus = ({ mirror }: { mirror: Pick<Mirror, 'state'> }) => <Status tone={mirrorTones[mirror.state]}>{mirror.state}</Status>;

/** Whether the backup has data that can be checked and made a volume of. */
export const restorable = (b: Pick<Backup, 'state' | 'mode'>) => b.state === 'completed' && b.mode === 'data';

/** One that is being made stays until its job has ended. */
export const mayDeleteBackup = (b: Pick<Backup, 'state'>) => b.state === 'completed' || b.state === 'failed';

/** What the moment of a snapshot was like. */
export const consistencyText = (c: Snapshot['consistency']) => (c === 'crash' ? 'of one moment' : 'parts may be of different moments');

const jobTones: Record<JobState, Tone> = { pending: 'idle', queued: 'idle', running: 'info', verifying: 'info', succeeded: 'ok', failed: 'bad' };

export const jobStates = Object.keys(jobTones) as JobState[];

/** The code of a job that somebody cancelled. */
const cancelled = 'CANCELLED';

/** The state in words. A job that was cancelled has not failed. */
export function jobText(j: Pick<Job, 'state' | 'error'>): { tone: Tone; text: string } {
  if (j.error?.code === cancelled) return { tone: 'warn', text: 'cancelled' };
  return { tone: jobTones[j.state], text: j.state === 'pending' ? 'waits for its next attempt' : j.state };
}

export function JobStatus({ job }: { job: Pick<Job, 'state' | 'error'> }) {
  const { tone, text } = jobText(job);
  return <Status tone={tone}>{text}</Status>;
}

export const underWay = (j: Pick<Job, 'state'>) => j.state !== 'succeeded' && j.state !== 'failed';

const severities: Record<Severity, Tone> = { info: 'info', warning: 'warn', critical: 'bad' };

export const severityNames = Object.keys(severities) as Severity[];

export const SeverityBadge = ({ severity }: { severity: Severity }) => (
  <Status tone={severities[severity]} icon={severity === 'info' ? 'info' : 'alert'}>
    {severity}
  </Status>
);

/** Whether nobody is notified of an alert now. */
export const silenced = (a: Pick<Alert, 'silenced_until'>, now: number) => a.silenced_until !== null && Date.parse(a.silenced_until) > now;
