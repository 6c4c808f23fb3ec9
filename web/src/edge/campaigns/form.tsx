/** The form for drafting a campaign. */
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { plural } from '../../ui/number';
import { reason } from '../../ui/problem';
import { api, schemas, type CampaignInput } from '../api';
import { artifactFields } from '../devices/actions';
import { useSiteOptions } from '../site-choice';
import { countTargets } from './targets';

const fieldsFor = (sites: FieldSpec['options'] & object): FieldSpec[] => [
  { name: 'name', label: 'Name', placeholder: 'Spring release' },
  ...artifactFields,
  { name: 'stages', label: 'Stages in percent', kind: 'numbers', placeholder: '5, 25, 100', hint: 'Rising, the last is 100. Without any: 5, 25, 100.' },
  { name: 'targets.labels', label: 'Devices with all these labels', hint: 'One name=value a line.' },
  { name: 'targets.site_ids', label: 'Only of these sites', kind: 'several', options: sites, hint: 'Without labels: all devices of the sites.', wide: true },
  { name: 'targets.device_ids', label: 'And these devices', hint: 'Device IDs, one a line.', wide: true },
  { name: 'success_threshold', label: 'Success threshold', hint: 'Share of a stage’s devices that must succeed, 0 to 1.', advanced: true },
  { name: 'failure_threshold', label: 'Failure threshold', hint: 'Share of failed devices above which it pauses or aborts, 0 to 1.', advanced: true },
  { name: 'min_devices', label: 'Smallest sample', hint: 'Failures count only when so many devices have finished.', advanced: true },
  { name: 'soak_seconds', label: 'Soak time in seconds', hint: 'How long a good stage is watched before it is promoted by itself.', advanced: true },
  { name: 'device_timeout_seconds', label: 'Time limit of a device in seconds', hint: 'Then it counts as failed. 0 waits for ever.', advanced: true },
  { name: 'auto_promote', label: 'Continue with the next stage by itself', advanced: true },
  { name: 'auto_abort', label: 'Abort by itself at the failure threshold', hint: 'Otherwise it pauses and waits for a person.', advanced: true },
];

/** How long nothing must be typed before the devices are counted. */
const pauseMs = 500;

/** How many devices match now. */
function Matching({ targets }: { targets: CampaignInput['targets'] }) {
  const wanted = JSON.stringify(targets);
  const named = Object.values(targets).some((t) => (Array.isArray(t) ? t.length : Object.keys(t).length) > 0);
  const { data, error } = useQuery({
    queryKey: ['campaigns', 'matching', wanted],
    queryFn: async ({ signal }) => {
      await new Promise((next) => setTimeout(next, pauseMs));
      signal.throwIfAborted();
      return countTargets(JSON.parse(wanted) as CampaignInput['targets'], signal);
    },
    enabled: named,
    placeholderData: keepPreviousData,
  });
  return (
    <p role="status" className="small">
      {!named ? (
        <span className="muted">No device is chosen yet.</span>
      ) : error ? (
        reason(error)
      ) : data !== undefined ? (
        <>
          <b>{plural(data, 'device')}</b> {data === 1 ? 'matches' : 'match'} now.
        </>
      ) : (
        <span className="muted">Counting the devices…</span>
      )}
    </p>
  );
}

export function CampaignDialog({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const fields = fieldsFor(useSiteOptions());
  return (
    <FormDialog<CampaignInput>
      title="Create a campaign"
      schema={schemas.CreateCampaign}
      fields={fields}
      action="Save the draft"
      preview={(input) => <Matching targets={input.targets ?? {}} />}
      two
      wide
      onClose={onClose}
      onSubmit={async (input) => {
        const made = await body(api.POST('/ota/campaigns', { body: input }));
        await queries.invalidateQueries({ queryKey: ['campaigns'] });
        onClose();
        navigate(`/campaigns/${encodeURIComponent(made.id)}`);
      }}
    >
      <p className="muted small">A draft asks nothing of any device. Which devices match is settled when it is started.</p>
    </FormDialog>
  );
}
