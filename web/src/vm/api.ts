/** The client of VM management's API: types and access rules. */
import access from '../api/vm.access.gen.json';
import bodies from '../api/vm.bodies.gen.json';
import type { components, paths } from '../api/vm.gen';
import { createAccess, useCaller, type Caller } from '../ui/access';
import { createClient } from '../ui/client';
import type { Schema } from '../ui/schema';
import { createSession } from '../ui/session';

type Schemas = components['schemas'];
export type AuditEntry = Schemas['AuditEntry'];
export type Backup = Schemas['Backup'];
export type BackupFile = Schemas['BackupFile'];
export type BackupPolicy = Schemas['BackupPolicy'];
export type BackupPolicySpec = Schemas['BackupPolicySpec'];
export type BackupSpec = Schemas['BackupSpec'];
export type CloneSpec = Schemas['CloneSpec'];
export type ComplianceCheck = Schemas['ComplianceCheck'];
export type ComplianceResult = Schemas['ComplianceResult'];
export type DataplaneProblem = Schemas['DataplaneProblem'];
export type Disk = Schemas['Disk'];
export type DiskChange = Schemas['DiskChange'];
export type DiskSpec = Schemas['DiskSpec'];
export type DocumentRule = Schemas['DocumentRule'];
export type EffectivePolicy = Schemas['EffectivePolicy'];
export type Flow = Schemas['NetworkFlow'];
export type Forward = Schemas['Forward'];
export type Image = Schemas['Image'];
export type ImageBuildSpec = Schemas['ImageBuildSpec'];
export type ImageDownload = Schemas['ImageDownload'];
export type ImageDownloadSpec = Schemas['ImageDownloadSpec'];
export type ImageImportSpec = Schemas['ImageImportSpec'];
export type ImageLog = Schemas['ImageLog'];
export type ImageResizeSpec = Schemas['ImageResizeSpec'];
export type ImageState = Schemas['ImageState'];
export type Invoice = Schemas['Invoice'];
export type Job = Schemas['Job'];
export type Me = Schemas['Me'];
export type Metrics = Schemas['Metrics'];
export type NetworkPolicy = Schemas['NetworkPolicy'];
export type Observed = Schemas['Observed'];
export type PolicyState = Schemas['PolicyState'];
export type Pricing = Schemas['Pricing'];
export type PricingSpec = Schemas['PricingSpec'];
export type Quota = Schemas['Quota'];
export type RestoreSpec = Schemas['RestoreSpec'];
export type RuleCount = Schemas['RuleCount'];
export type SecurityGroup = Schemas['SecurityGroup'];
export type SecurityGroupSpec = Schemas['SecurityGroupSpec'];
export type Snapshot = Schemas['Snapshot'];
export type SnapshotNode = Schemas['SnapshotNode'];
export type SnapshotSpec = Schemas['SnapshotSpec'];
export type State = Schemas['State'];
export type StopOptions = Schemas['StopOptions'];
export type Tenant = Schemas['Tenant'];
export type TenantSpec = Schemas['TenantSpec'];
export type UsageRecord = Schemas['UsageRecord'];
export type User = Schemas['User'];
export type UserChange = Schemas['UserChange'];
export type UserSpec = Schemas['UserSpec'];
export type VM = Schemas['VM'];
export type VMChange = Schemas['VMChange'];
export type VMEvent = Schemas['Event'];
export type VMPolicy = Schemas['VMPolicy'];
export type VMPolicySpec = Schemas['VMPolicySpec'];
export type VMRule = Schemas['VMRule'];
export type VMSpec = Schemas['VMSpec'];
export type Webhook = Schemas['Webhook'];
export type WebhookChange = Schemas['WebhookChange'];
export type WebhookDelivery = Schemas['WebhookDelivery'];
export type WebhookSpec = Schemas['WebhookSpec'];

export const session = createSession('vm');
export const api = createClient<paths>(session, '/');

/** The schemas of request bodies, by operation. */
export const schemas = bodies as unknown as Record<keyof typeof bodies, Schema>;

type OperationID = keyof typeof access;

export const { useMay, Allowed } = createAccess<OperationID>(access);

/** Converts the signed-in user to a caller of the shared rules. */
export const callerOf = (me: Me): Caller => ({ subject: me.username, kind: 'token', role: me.role, org_id: me.tenant ?? '', expires_at: me.expires_at ?? null });

/** Whether the caller sees the VMs of every tenant: an admin without a tenant. */
export function useSeesAll(): boolean {
  const { role, org_id } = useCaller();
  return role === 'admin' && org_id === '';
}

/** The maximum size of a page of a list. */
export const pageLimit = 1000;
