/** The form for a schedule: what is done to what, and how often. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import type { Draft } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import type { Schema } from '../../ui/schema';
import { toast } from '../../ui/toast';
import { api, pageLimit, schemas, type Schedule, type ScheduleSpec } from '../api';
import { bucketLabel, useBuckets } from '../links';
import { useRefresh } from '../live';
import { spanField } from '../spans';
import { firstRun, specOf } from './spec';

/** What a schedule may be of. */
interface Input extends ScheduleSpec {
  of?: 'volume' | 'group';
}

const schema: Schema = { ...schemas.CreateSchedule, properties: { ...schemas.CreateSchedule.properties, of: { type: 'string', enum: ['volume', 'group'] } } };

/** The service makes no run more often. */
const shortest = 300;

const is = (d: Draft, ...kinds: ScheduleSpec['kind'][]) => kinds.some((k) => d['kind'] === k);
const ofGroup = (d: Draft) => is(d, 'snapshot') && d['of'] === 'group';

export function ScheduleForm({ schedule, volume, onClose }: { /** The one that is changed. */ schedule?: Schedule; /** The volume that a new one is proposed for. */ volume?: string; onClose: () => void }) {
  const refresh = useRefresh();
  const buckets = useBuckets().data;
  const choices = useQuery({
    queryKey: ['schedules', 'choices'],
    queryFn: async ({ signal }) => {
      const query = { params: { query: { limit: pageLimit } }, signal };
      const [volumes, groups] = await Promise.all([body(api.GET('/volumes', query)), body(api.GET('/volume-groups', query))]);
      const label = (x: { name: string; tenant_id: string }) => (x.tenant_id ? `${x.name}, of ${x.tenant_id}` : x.name);
      return { volumes: volumes.filter((v) => v.managed).map((v) => ({ value: v.id, label: label(v) })), groups: groups.map((g) => ({ value: g.id, label: label(g) })) };
    },
  }).data;
  // The form knows its choices from the beginning.
  if (!choices || !buckets) return null;
  const usable = buckets.filter((b) => b.state === 'bound').map((b) => ({ value: b.id, label: bucketLabel(b) }));
  const of = schedule?.group_id ? 'group' : 'volume';
  return (
    <FormDialog<Input>
      title={schedule ? `Change ${schedule.name}` : 'Create a schedule'}
      wide
      two
      schema={schema}
      fields={[
        { name: 'name', label: 'Name', hint: 'Unique within its tenant' },
        {
          name: 'kind',
          label: 'What',
          options: [
            { value: 'snapshot', label: 'take a snapshot' },
            { value: 'backup', label: 'make a backup' },
            { value: 'verify', label: 'verify the newest backup' },
            { value: 'test_restore', label: 'restore the newest backup, and remove that again' },
          ],
          hint: '',
        },
        {
          name: 'of',
          label: 'Of',
          options: [
            { value: 'volume', label: 'a volume' },
            { value: 'group', label: 'a group of volumes' },
          ],
          hint: '',
          when: (d) => is(d, 'snapshot') && choices.groups.length > 0,
        },
        { name: 'volume_id', label: 'Volume', options: choices.volumes, hint: '', when: (d) => !ofGroup(d) },
        { name: 'group_id', label: 'Group', options: choices.groups, hint: '', when: ofGroup },
        { name: 'bucket_id', label: 'Bucket', options: usable, hint: 'Where backups go', when: (d) => is(d, 'backup') },
        { name: 'bucket_id', label: 'Bucket', options: [{ value: '', label: 'any' }, ...usable], hint: 'Only backups in it are verified', when: (d) => is(d, 'verify', 'test_restore') },
        {
          name: 'mode',
          label: 'Content',
          options: [
            { value: 'data', label: 'the volume with its data' },
            { value: 'manifest', label: 'a description of the volume, without data' },
          ],
          hint: '',
          when: (d) => is(d, 'backup'),
        },
        spanField('every_secs', 'Every', { placeholder: '1 day', hint: 'As in 1 hour or 7 days' }, shortest),
        { name: 'first_at', label: 'First run', hint: 'Later ones are counted from it. Empty: at once' },
        { name: 'keep', label: 'Keep', hint: 'So many of the newest that it made. All, when empty or 0', when: (d) => is(d, 'snapshot', 'backup') },
        spanField('max_age_secs', 'Remove after', { hint: 'What it made and is older. Never, when empty', when: (d) => is(d, 'snapshot', 'backup') }),
        { name: 'full_every', label: 'Full uploads', hint: 'Each of so many backups uploads everything. Only the first does, when empty or 0', when: (d) => is(d, 'backup') && d['mode'] === 'data' },
        { name: 'key_ref', label: 'Key', hint: 'An entry of the gateway’s setting backup-keys. Empty: not encrypted', when: (d) => is(d, 'backup') && d['mode'] === 'data' },
      ]}
      values={schedule ? { ...specOf(schedule), of } : { kind: 'snapshot', of, volume_id: volume ?? choices.volumes[0]?.value, group_id: choices.groups[0]?.value, bucket_id: usable[0]?.value, mode: 'data' }}
      prepare={(input) => ({ ...input, enabled: schedule?.enabled ?? true })}
      warning={(input) =>
        input.kind === 'backup' && usable.length === 0 ? 'There is no bucket that backups can go to. An operator makes one under Buckets.' : schedule?.enabled && input.first_at === undefined ? `Saving runs it ${firstRun({})}.` : undefined
      }
      action={schedule ? 'Save' : 'Create the schedule'}
      onClose={onClose}
      onSubmit={async (input) => {
        const spec = { ...input };
        // It only decides over the fields.
        delete spec.of;
        await (schedule ? api.PUT('/schedules/{id}', { params: { path: { id: schedule.id } }, body: spec }) : api.POST('/schedules', { body: spec }));
        onClose();
        toast(`${input.name} is ${schedule ? 'changed' : 'created'}.`);
        await refresh();
      }}
    />
  );
}
