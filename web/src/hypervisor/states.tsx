/**
 * The states of VMs, operations, images and nodes with their texts and colours, and the actions
 * that each state allows.
 */
import { Status, type Tone } from '../ui/status';
import type { Image, Node, Operation, State, VM } from './api';

export const states: readonly State[] = ['running', 'paused', 'stopped', 'failed', 'creating', 'starting', 'stopping', 'deleting'];

const tones: Record<State, Tone> = { running: 'ok', paused: 'warn', stopped: 'idle', failed: 'bad', creating: 'info', starting: 'info', stopping: 'info', deleting: 'info' };

export const VMState = ({ state }: { state: State }) => (
  <Status tone={tones[state]} icon={state === 'paused' ? 'pause' : undefined}>
    {state}
  </Status>
);

export type Verb = 'start' | 'stop' | 'restart' | 'reset' | 'pause' | 'resume' | 'clone' | 'delete';

const verbs: Record<State, readonly Verb[]> = {
  creating: ['delete'],
  stopped: ['start', 'clone', 'delete'],
  failed: ['start', 'clone', 'delete'],
  starting: ['stop', 'delete'],
  running: ['stop', 'restart', 'reset', 'pause', 'clone', 'delete'],
  paused: ['resume', 'stop', 'restart', 'clone', 'delete'],
  // A second request can be forced, and the latest counts.
  stopping: ['stop', 'restart', 'delete'],
  // A deletion may have been interrupted when the daemon stopped.
  deleting: ['delete'],
};

/** The actions that make sense in a state. The daemon makes the final decision. */
export const may = (state: State, verb: Verb) => verbs[state].includes(verb);

/** Whether the guest can be reset now: firecracker and sandboxes have no reset. */
export const resettable = (vm: Pick<VM, 'state' | 'backend'>) => may(vm.state, 'reset') && (vm.backend === 'qemu' || vm.backend === 'cloud-hypervisor');

/** Whether the VM currently has a console, an agent and metrics. */
export const alive = (state: State) => state === 'running' || state === 'paused';

/** Whether the VM's disk is not in use, so that it can be replaced or shared. */
export const atRest = (state: State) => state === 'stopped' || state === 'failed';

/** Whether the disks and the CD of the VM can change now. */
export const changeable = (vm: Pick<VM, 'state' | 'backend'>) => vm.backend === 'qemu' && (alive(vm.state) || atRest(vm.state));

/** Whether the traffic of the VM can be limited: it has a device on the host. */
export const limitable = (vm: Pick<VM, 'network'>) => vm.network.mode === 'bridge' || vm.network.mode === 'tap';

const pendingTexts: Record<string, string> = { vcpus: 'processors', memory_mib: 'memory', cd: 'CD' };

/** A field that changes with the next start. */
export const pendingText = (field: string) => pendingTexts[field] ?? field;

const operationTones: Record<Operation['state'], Tone> = { queued: 'idle', running: 'info', succeeded: 'ok', failed: 'bad', cancelled: 'warn' };

export const OperationState = ({ operation }: { operation: Operation }) => <Status tone={operationTones[operation.state]}>{operation.state}</Status>;

export const underWay = (o: Operation) => o.state === 'queued' || o.state === 'running';

const kinds: Record<string, string> = { backup: 'Backup', restore: 'Restore', clone: 'Clone', 'image.add': 'Image', 'template.create': 'Template of' };

/** A short description of an operation. */
export const operationTitle = (o: Operation) => `${kinds[o.kind] ?? o.kind}${o.image ? ` ${o.image}` : ''}`;

/** The result of verifying an image's signature. */
export function signatureText(image: Pick<Image, 'signature_valid'>): { tone: Tone; text: string } {
  if (image.signature_valid === null) return { tone: 'idle', text: 'none' };
  return image.signature_valid ? { tone: 'ok', text: 'valid' } : { tone: 'bad', text: 'not valid' };
}

export function Signature({ image }: { image: Image }) {
  const { tone, text } = signatureText(image);
  return <Status tone={tone}>{text}</Status>;
}

export const nodeText = (n: Pick<Node, 'healthy' | 'cordoned'>): { tone: Tone; text: string } =>
  n.healthy ? (n.cordoned ? { tone: 'warn', text: 'cordoned' } : { tone: 'ok', text: 'healthy' }) : { tone: 'bad', text: n.cordoned ? 'silent, cordoned' : 'silent' };

export function NodeState({ node }: { node: Node }) {
  const { tone, text } = nodeText(node);
  return <Status tone={tone}>{text}</Status>;
}
