/** The client of the hypervisor daemon's API: types and access rules. */
import access from '../api/hypervisor.access.gen.json';
import bodies from '../api/hypervisor.bodies.gen.json';
import type { components, paths } from '../api/hypervisor.gen';
import { createAccess, type Caller } from '../ui/access';
import { createClient } from '../ui/client';
import type { Schema } from '../ui/schema';
import { createSession } from '../ui/session';

type Schemas = components['schemas'];
export type AuditEntry = Schemas['AuditEntry'];
export type Backup = Schemas['Backup'];
export type Capacity = Schemas['Capacity'];
export type Disk = Schemas['Disk'];
export type DiskPatch = Schemas['DiskPatch'];
export type DiskSpec = Schemas['DiskSpec'];
export type Exec = Schemas['Exec'];
export type ExecOutcome = Schemas['ExecOutcome'];
export type FleetVM = Schemas['FleetVM'];
export type Host = Schemas['Host'];
export type Image = Schemas['Image'];
export type ImageSpec = Schemas['ImageSpec'];
export type Me = Schemas['Me'];
export type Metrics = Schemas['VMMetrics'];
export type NetworkLimits = Schemas['NetworkLimits'];
export type Node = Schemas['Node'];
export type Operation = Schemas['Operation'];
export type Snapshot = Schemas['Snapshot'];
export type SnapshotSpec = Schemas['SnapshotSpec'];
export type State = Schemas['State'];
export type Stop = Schemas['Stop'];
export type Template = Schemas['Template'];
export type TemplateSpec = Schemas['TemplateSpec'];
export type VM = Schemas['VM'];
export type UsagePoint = Schemas['UsagePoint'];
export type VMEvent = Schemas['Event'];
export type VMPatch = Schemas['VMPatch'];
export type VMSpec = Schemas['VMSpec'];

export const session = createSession('hypervisor');
export const api = createClient<paths>(session, '/');

/** The schemas of request bodies, by operation. */
export const schemas = bodies as unknown as Record<keyof typeof bodies, Schema>;

type OperationID = keyof typeof access;

/**
 * Maps the contract's access classes to those of the shared rules. Operations of a fleet's daemons
 * are for nobody here.
 */
const classes: Record<string, string> = { tenant: 'any', socket: 'any', admin: 'admin', node: 'nobody' };

export const { useMay, Allowed } = createAccess<OperationID>(Object.fromEntries(Object.entries(access).map(([id, c]) => [id, classes[c] ?? 'nobody'])) as Record<OperationID, string>);

/** Converts the signed-in user to a caller of the shared rules. */
export const callerOf = (me: Me): Caller => ({ subject: me.name, kind: 'token', role: me.admin ? 'admin' : 'tenant', org_id: me.tenant, expires_at: null });

/** The maximum size of a page of a list. */
export const pageLimit = 1000;
