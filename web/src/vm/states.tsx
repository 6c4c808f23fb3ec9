/** The states of VMs, jobs, backups and policies with their texts and colours, and the actions that each state allows. */
import { Status, type Tone } from '../ui/status';
import type { Backup, Image, ImageState, Job, PolicyState, State, VM } from './api';

export const states: readonly State[] = ['running', 'paused', 'stopped', 'failed', 'missing', 'starting', 'stopping'];

const tones: Record<State, Tone> = { running: 'ok', paused: 'warn', stopped: 'idle', failed: 'bad', missing: 'bad', starting: 'info', stopping: 'info' };

/** The state in words. Of a VM whose host does not answer, it is the last one that was known. */
export function stateText(vm: Pick<VM, 'state' | 'unreachable'>): { tone: Tone; text: string } {
  return vm.unreachable ? { tone: 'warn', text: `unreachable, last ${vm.state}` } : { tone: tones[vm.state], text: vm.state };
}

export function VMState({ vm }: { vm: Pick<VM, 'state' | 'unreachable'> }) {
  const { tone, text } = stateText(vm);
  return (
    <Status tone={tone} {...(vm.state === 'paused' && !vm.unreachable && { icon: 'pause' })}>
      {text}
    </Status>
  );
}

export type Verb = 'start' | 'stop' | 'restart' | 'pause' | 'resume' | 'clone' | 'delete';

const verbs: Record<State, readonly Verb[]> = {
  stopped: ['start', 'clone', 'delete'],
  failed: ['start', 'clone', 'delete'],
  missing: ['delete'],
  starting: ['stop', 'delete'],
  running: ['stop', 'restart', 'pause', 'clone', 'delete'],
  paused: ['resume', 'stop', 'clone', 'delete'],
  stopping: ['stop', 'delete'],
};

/** The actions that make sense for a VM now. The service makes the final decision. */
export const may = (vm: Pick<VM, 'state' | 'protected'>, verb: Verb) => verbs[vm.state].includes(verb) && !(verb === 'delete' && vm.protected);

/** Whether the guest runs, so that it is measured. */
export const alive = (vm: Pick<VM, 'state' | 'unreachable'>) => !vm.unreachable && (vm.state === 'running' || vm.state === 'paused');

/** Whether the hypervisor tells what the VM has now. */
export const seen = (vm: Pick<VM, 'state' | 'unreachable'>) => !vm.unreachable && vm.state !== 'missing';

/** Whether the backend lets disks and CDs come and go. Which one `auto` stands for, the hypervisor decides: it may refuse. */
export const flexible = (vm: Pick<VM, 'backend'>) => vm.backend === 'qemu' || vm.backend === 'auto';

/** Whether the disks and the CD of the VM can change now. */
export const changeable = (vm: Pick<VM, 'state' | 'unreachable' | 'backend' | 'provisioned' | 'job'>) =>
  flexible(vm) && vm.provisioned && vm.job === null && (alive(vm) || (!vm.unreachable && atRest(vm)));

const together = new Intl.ListFormat('en-GB');
const pendingTexts: Record<string, string> = { cpus: 'processors', cd: 'CD' };

/** What changes with the next start, in words. */
export const pendingText = (vm: Pick<VM, 'pending'>) => together.format(vm.pending.map((field) => pendingTexts[field] ?? field));

/** Whether the VM's disk is not in use, so that it can be replaced. */
export const atRest = (vm: Pick<VM, 'state'>) => vm.state === 'stopped' || vm.state === 'failed';

const jobTones: Record<Job['status'], Tone> = { queued: 'idle', running: 'info', completed: 'ok', failed: 'bad', cancelled: 'warn' };

export const JobState = ({ job }: { job: Pick<Job, 'status'> }) => <Status tone={jobTones[job.status]}>{job.status}</Status>;

export const underWay = (j: Pick<Job, 'status'>) => j.status === 'queued' || j.status === 'running';

const kinds: Record<string, string> = {
  'vm.provision': 'Make',
  'vm.start': 'Start',
  'vm.restore': 'Restore',
  'backup.create': 'Back up',
  'backup.verify': 'Verify the backup repository',
  'backup.boot': 'Boot a backup',
  'compliance.scan': 'Compliance scan of',
  'image.build': 'Build image',
  'image.download': 'Download image',
  'image.import': 'Import image',
  'image.resize': 'Resize image',
};

/** A short description of a job, as in “Start web”. */
export const jobTitle = (j: Pick<Job, 'kind' | 'vm_name'>) => `${kinds[j.kind] ?? j.kind}${j.vm_name ? ` ${j.vm_name}` : ''}`;

const backupTones: Record<Backup['status'], Tone> = { pending: 'idle', running: 'info', completed: 'ok', failed: 'bad', damaged: 'bad' };

export const BackupState = ({ backup }: { backup: Pick<Backup, 'status'> }) => <Status tone={backupTones[backup.status]}>{backup.status}</Status>;

const imageTones: Record<ImageState, Tone> = { pending: 'idle', building: 'info', downloading: 'info', importing: 'info', completed: 'ok', failed: 'bad', cancelled: 'warn' };

export const imageStates = Object.keys(imageTones) as ImageState[];

export const ImageBadge = ({ image }: { image: Pick<Image, 'state'> }) => <Status tone={imageTones[image.state]}>{image.state}</Status>;

/** Whether an image is not there yet, and may still come. */
export const inMaking = (i: Pick<Image, 'state'>) => imageTones[i.state] === 'info' || i.state === 'pending';

const consistencies: Record<string, string> = { crash: 'as after a power failure', filesystem: 'file systems were frozen', stopped: 'the VM was stopped', application: 'programs were asked to be ready' };

/** What a backup's moment was like. */
export const consistencyText = (c: string) => consistencies[c] ?? c;

const policyWords: Record<PolicyState, [tone: Tone, text: string]> = {
  none: ['idle', 'no policy'],
  pending: ['info', 'pending'],
  applied: ['ok', 'in force'],
  failed: ['bad', 'not in force'],
  unsupported: ['bad', 'not enforced'],
};

export function PolicyStatus({ state }: { state: PolicyState }) {
  const [tone, text] = policyWords[state];
  return <Status tone={tone}>{text}</Status>;
}
