/** The client of the storage gateway's API: types and access rules. */
import access from '../api/storage.access.gen.json';
import bodies from '../api/storage.bodies.gen.json';
import type { components, paths } from '../api/storage.gen';
import { createAccess, useCaller, type Caller } from '../ui/access';
import { createClient } from '../ui/client';
import type { Schema } from '../ui/schema';
import { createSession, type Who } from '../ui/session';

type Schemas = components['schemas'];
export type Alert = Schemas['Alert'];
export type AuditEntry = Schemas['AuditEntry'];
export type Backend = Schemas['Backend'];
export type BackendSpec = Schemas['BackendSpec'];
export type BackendStatus = Schemas['BackendStatus'];
export type Backup = Schemas['Backup'];
export type BackupImport = Schemas['BackupImport'];
export type BackupMode = Schemas['BackupMode'];
export type BackupRestoreSpec = Schemas['BackupRestoreSpec'];
export type BackupSpec = Schemas['BackupSpec'];
export type BackupState = Schemas['BackupState'];
export type BackupVerifySpec = Schemas['BackupVerifySpec'];
export type Bucket = Schemas['Bucket'];
export type BucketEntry = Schemas['BucketEntry'];
export type BucketRule = Schemas['BucketRule'];
export type BucketSpec = Schemas['BucketSpec'];
export type BucketState = Schemas['BucketState'];
export type BucketStats = Schemas['BucketStats'];
export type Capabilities = Schemas['Capabilities'];
export type CapacityPoint = Schemas['CapacityPoint'];
export type CloneSpec = Schemas['CloneSpec'];
export type Cluster = Schemas['Cluster'];
export type ClusterHealth = Schemas['ClusterHealth'];
export type Condition = Schemas['Condition'];
export type DRStep = Schemas['DRStep'];
export type Event = Schemas['Event'];
export type EventType = Schemas['EventType'];
export type Expansion = Schemas['Expansion'];
export type Forecast = Schemas['Forecast'];
export type GroupSnapshot = Schemas['GroupSnapshot'];
export type GroupSnapshotSpec = Schemas['GroupSnapshotSpec'];
export type Job = Schemas['Job'];
export type JobState = Schemas['JobState'];
export type Maintenance = Schemas['Maintenance'];
export type Mirror = Schemas['Mirror'];
export type MirrorMode = Schemas['MirrorMode'];
export type MirrorSite = Schemas['MirrorSite'];
export type OSD = Schemas['OSD'];
export type Peer = Schemas['Peer'];
export type PeerSpec = Schemas['PeerSpec'];
export type Policy = Schemas['Policy'];
export type PolicySpec = Schemas['PolicySpec'];
export type Pool = Schemas['Pool'];
export type RBDCloneSpec = Schemas['RBDCloneSpec'];
export type RBDImage = Schemas['RBDImage'];
export type RBDImageSpec = Schemas['RBDImageSpec'];
export type RBDSnapshot = Schemas['RBDSnapshot'];
export type RBDSnapshotSpec = Schemas['RBDSnapshotSpec'];
export type RestoreSpec = Schemas['RestoreSpec'];
export type Schedule = Schemas['Schedule'];
export type ScheduleKind = Schemas['ScheduleKind'];
export type ScheduleSpec = Schemas['ScheduleSpec'];
export type Severity = Schemas['Severity'];
export type Silence = Schemas['Silence'];
export type Snapshot = Schemas['Snapshot'];
export type SnapshotSpec = Schemas['SnapshotSpec'];
export type SnapshotState = Schemas['SnapshotState'];
export type Tenant = Schemas['Tenant'];
export type TenantSpec = Schemas['TenantSpec'];
export type TrashItem = Schemas['TrashItem'];
export type Undelete = Schemas['Undelete'];
export type Volume = Schemas['Volume'];
export type VolumeGroup = Schemas['VolumeGroup'];
export type VolumeGroupSpec = Schemas['VolumeGroupSpec'];
export type VolumeKind = Schemas['VolumeKind'];
export type VolumeSpec = Schemas['VolumeSpec'];
export type VolumeState = Schemas['VolumeState'];

/** Where the paths of the contract begin. */
export const basePath = '/api/store/v1';

export const session = createSession('storage');
export const api = createClient<paths>(session, basePath);

/** The schemas of request bodies, by operation. */
export const schemas = bodies as unknown as Record<keyof typeof bodies, Schema>;

type OperationID = keyof typeof access;

/**
 * What changes, or shows, what belongs to no tenant. It takes a caller without one. The service has the
 * same list (service/storage/gate), and a test compares them.
 */
export const nobodys: readonly OperationID[] = [
  'CreateBackend',
  'DiscoverBackend',
  'CordonBackend',
  'UncordonBackend',
  'PutPolicy',
  'DeletePolicy',
  'PutTenant',
  'DeleteTenant',
  'VerifyAudit',
  'AcknowledgeAudit',
  'SetMaintenance',
  'MarkOSDOut',
  'MarkOSDIn',
  'ReweightOSD',
  'RefreshRBDUsage',
  'GetUpgradePreflight',
  'ImportBackups',
  'CreatePeer',
  'DeletePeer',
  'SetPoolMirroring',
];

/** The shared rules call an operator a user. */
const roles: Record<string, string> = { viewer: 'viewer', operator: 'user', admin: 'admin' };

/** The access class of an operation, in the words of the shared rules. */
export function classOf(id: OperationID): string {
  const role = roles[access[id]] ?? 'nobody';
  return nobodys.includes(id) ? `global-${role}` : role;
}

export const { useMay, Allowed } = createAccess<OperationID>(Object.fromEntries((Object.keys(access) as OperationID[]).map((id) => [id, classOf(id)])) as Record<OperationID, string>);

/** Converts the signed-in person to a caller of the shared rules. */
export const callerOf = (who: Who): Caller => ({ subject: who.name, kind: 'token', role: roles[who.access ?? ''] ?? '', org_id: who.tenant ?? '', expires_at: null });

/** Whether the caller sees what is of every tenant, and what is nobody's. */
export const useSeesAll = () => useCaller().org_id === '';

/** The maximum size of a page of a list. */
export const pageLimit = 1000;
