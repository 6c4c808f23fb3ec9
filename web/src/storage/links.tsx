/** Addresses of the console's pages. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { body } from '../ui/client';
import { api, pageLimit, type Alert, type Backend, type Backup, type Bucket, type Cluster, type Job, type Mirror, type RBDImage, type Volume, type VolumeGroup } from './api';
import { osdOf, type Names } from './names';

const segment = encodeURIComponent;

export const volumePath = (v: Pick<Volume, 'id'>) => `/volumes/${segment(v.id)}`;
export const backendPath = (b: Pick<Backend, 'id'>) => `/backends/${segment(b.id)}`;
export const backupPath = (b: Pick<Backup, 'id'>) => `/backups/${segment(b.id)}`;
export const bucketPath = (b: Pick<Bucket, 'id'>) => `/buckets/${segment(b.id)}`;
export const restorePath = (b: Pick<Backup, 'id'>) => `/restore?backup=${segment(b.id)}`;
export const imagePath = (i: Pick<RBDImage, 'cluster_id' | 'pool' | 'name'>) => `/images/${segment(i.cluster_id)}/${segment(i.pool)}/${segment(i.name)}`;
export const mirrorPath = (m: Pick<Mirror, 'id'>) => `/mirrors/${segment(m.id)}`;
export const groupPath = (g: Pick<VolumeGroup, 'id'>) => `/groups/${segment(g.id)}`;
/** The image of a page. The path is that of the browser: the router decodes a part of it, and names may hold a percent sign. */
export function imageAt(pathname: string): { cluster: string; pool: string; name: string } {
  const [cluster = '', pool = '', name = ''] = pathname.split('/').slice(2).map(decodeURIComponent);
  return { cluster, pool, name };
}

export const jobPath = (j: Pick<Job, 'id'>) => `/jobs/${segment(j.id)}`;

/** All clusters, as they were last seen. */
export const useClusters = () =>
  useQuery({ queryKey: ['clusters'], queryFn: ({ signal }) => body(api.GET('/clusters', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 10_000 });

/** All backends. */
export const useBackends = () =>
  useQuery({ queryKey: ['backends', 'all'], queryFn: ({ signal }) => body(api.GET('/backends', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 10_000 });

/** All pools. */
export const usePools = () =>
  useQuery({ queryKey: ['pools', 'all'], queryFn: ({ signal }) => body(api.GET('/pools', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 30_000 });

/** What the backend of a cluster is called. */
export function useBackendNames(): (cluster: string) => string | undefined {
  const clusters = useClusters().data;
  const backends = useBackends().data;
  return (cluster) => backends?.find((b) => b.id === clusters?.find((c) => c.id === cluster)?.backend_id)?.name;
}

/** All buckets. */
export const useBuckets = () =>
  useQuery({ queryKey: ['buckets', 'all'], queryFn: ({ signal }) => body(api.GET('/buckets', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 10_000 });

export const bucketLabel = (b: Pick<Bucket, 'name' | 'tenant_id'>) => (b.tenant_id ? `${b.name}, of ${b.tenant_id}` : b.name);

/** The alerts that are open. */
export const useOpenAlerts = () =>
  useQuery({ queryKey: ['alerts', 'open'], queryFn: ({ signal }) => body(api.GET('/alerts', { params: { query: { state: 'open', limit: pageLimit } }, signal })), refetchInterval: 10_000 });

/** The page about the subject of an alert. */
export function subjectPath(alert: Pick<Alert, 'resource_type' | 'resource_id'>, clusters: readonly Cluster[]): string {
  const id = alert.resource_id;
  const ofCluster = (cluster: string, tab = '') => {
    const found = clusters.find((c) => c.id === cluster);
    return found ? `${backendPath({ id: found.backend_id })}${tab}` : '/backends';
  };
  switch (alert.resource_type) {
    case 'cluster':
      return ofCluster(id);
    case 'backend':
      return backendPath({ id });
    case 'osd':
      return ofCluster(osdOf(id)?.cluster ?? '', '#osds');
    case 'pool':
      return '/backends';
    case 'tenant':
      return `/tenants?filter=${segment(id.replace(/:[a-z]+$/, ''))}`;
    case 'job':
      return '/jobs?state=failed';
    case 'audit':
      return '/audit';
    case 'volume':
      return volumePath({ id });
    case 'mirror':
      return mirrorPath({ id });
    case 'peer':
      return '/mirrors';
  }
  return '/alerts';
}

/** The page about what a job or an event is about, if there is one. */
export function resourcePath(type: string, id: string): string | undefined {
  switch (type) {
    case 'volume':
    case 'image':
      return volumePath({ id });
    case 'backup':
      return backupPath({ id });
    case 'bucket':
      return bucketPath({ id });
    case 'mirror':
      return mirrorPath({ id });
    // Events name a group as the audit log does.
    case 'group':
    case 'volume_group':
      return groupPath({ id });
  }
  return undefined;
}

/** A link to a volume by its name. */
export function VolumeLink({ id, names }: { id: string; names: Names }) {
  return <Link href={volumePath({ id })}>{names.get(id) ?? id}</Link>;
}
