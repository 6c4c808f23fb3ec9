/** What jobs and alerts are about, in words: they have ids only. */
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { body } from '../ui/client';
import { api, pageLimit, type Job } from './api';

export type Names = ReadonlyMap<string, string>;

const none: Names = new Map();

/** What the newest volumes, snapshots, groups, buckets, backups and mirrors are called, by id, with those that were seen before and are gone. */
export function useNames(): Names {
  const queries = useQueryClient();
  const key = ['volumes', 'names'];
  const { data } = useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => {
      const query = { params: { query: { limit: pageLimit } }, signal };
      const [volumes, snapshots, groups, buckets, backups, mirrors] = await Promise.all([
        body(api.GET('/volumes', query)),
        body(api.GET('/snapshots', query)),
        body(api.GET('/volume-groups', query)),
        body(api.GET('/buckets', query)),
        body(api.GET('/backups', query)),
        body(api.GET('/dr/mirrors', query)),
      ]);
      return new Map([
        ...(queries.getQueryData<Names>(key) ?? none),
        ...[...volumes, ...snapshots].map((v) => [v.id, v.name] as const),
        ...groups.map((g) => [g.id, `group ${g.name}`] as const),
        ...buckets.map((b) => [b.id, `bucket ${b.name}`] as const),
        ...backups.map((b) => [b.id, `backup of ${b.volume_name}`] as const),
        ...mirrors.map((m) => [m.id, `mirror of ${m.image}`] as const),
      ]);
    },
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });
  return data ?? none;
}

/** The end of an id, which differs between those of one day. */
export const shortId = (id: string) => (id.length > 12 ? `…${id.slice(-8)}` : id);

/** The cluster and the number of an OSD. Jobs write a slash between them, alerts a colon. */
export function osdOf(id: string): { cluster: string; number: string } | undefined {
  const found = /^(.+)[/:](\d+)$/.exec(id);
  return found ? { cluster: found[1] ?? '', number: found[2] ?? '' } : undefined;
}

/** What a job or an event is about, as in “data”, “OSD 3” or “volume …1a2b3c4d”. */
export function resourceName({ type, id }: { type: string; id: string }, names: Names): string {
  if (type === 'osd') return `OSD ${osdOf(id)?.number ?? id}`;
  return names.get(id) ?? `${type.replaceAll('_', ' ')} ${shortId(id)}`;
}

/** The kinds of jobs. The service has the same (service/storage/record), and a test compares them. */
const kinds: Record<string, string> = {
  'volume.create': 'Create',
  'volume.expand': 'Expand',
  'volume.delete': 'Delete',
  'snapshot.create': 'Take the snapshot',
  'snapshot.delete': 'Delete the snapshot',
  'snapshot.clone': 'Make the clone',
  'snapshot.restore': 'Restore to',
  'snapshot.revert': 'Roll back',
  'trash.restore': 'Bring back',
  'trash.purge': 'Remove for ever',
  'image.create': 'Create',
  'image.delete': 'Delete',
  'image.clone': 'Make the clone',
  'image.resize': 'Expand',
  'image.shrink': 'Shrink',
  'image.flatten': 'Flatten',
  'image.qos': 'Limit',
  'image.migrate': 'Move',
  'image.rollback': 'Roll back',
  'image.snapshot.create': 'Take the snapshot',
  'image.snapshot.delete': 'Delete the snapshot',
  'image.refresh_usage': 'Count what images use in the',
  'group.snapshot.create': 'Take the',
  'group.snapshot.delete': 'Delete the',
  'group.rollback': 'Roll back to the',
  'bucket.create': 'Create the',
  'bucket.delete': 'Delete the',
  'backup.create': 'Make the',
  'backup.delete': 'Delete the',
  'backup.verify': 'Verify the',
  'backup.restore': 'Restore to',
  'mirror.enable': 'Begin the',
  'mirror.disable': 'End the',
  'mirror.promote': 'Promote the',
  'mirror.demote': 'Demote the',
  'mirror.resync': 'Copy again the',
  'mirror.failover': 'Fail over to the',
  'mirror.rehearse': 'Read the copy of the',
  'backup.import': 'Take in the backups of the',
  'osd.out': 'Take out',
  'osd.in': 'Take in',
  'osd.reweight': 'Reweight',
};

/** The kinds of jobs, for a choice. */
export const jobKinds = Object.keys(kinds);

/** A short description of a job, as in “Expand data”. */
export const jobTitle = (j: Pick<Job, 'kind' | 'resource'>, names: Names) => `${kinds[j.kind] ?? j.kind} ${resourceName(j.resource, names)}`;
