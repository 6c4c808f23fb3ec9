/** The form for drafting a campaign. */
import { useQueryClient } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { api, schemas, type CampaignInput } from '../api';
import { artifactFields } from '../devices/actions';

const fields: FieldSpec[] = [
  { name: 'name', label: 'Name', placeholder: 'Spring release' },
  ...artifactFields,
  { name: 'stages', label: 'Stages in percent', kind: 'numbers', placeholder: '5, 25, 100', hint: 'Rising, the last is 100. Without any: 5, 25, 100.' },
  { name: 'targets.labels', label: 'Devices with all these labels', hint: 'One name=value a line.' },
  { name: 'targets.site_ids', label: 'Only of these sites', hint: 'Site ids, one a line. Without labels: all devices of the sites.' },
  { name: 'targets.device_ids', label: 'And these devices', hint: 'Device ids, one a line.', wide: true },
  { name: 'success_threshold', label: 'Success threshold', hint: 'Share of a stage’s devices that must succeed, 0 to 1.', advanced: true },
  { name: 'failure_threshold', label: 'Failure threshold', hint: 'Share of failed devices above which it pauses or aborts, 0 to 1.', advanced: true },
  { name: 'min_devices', label: 'Smallest sample', hint: 'Failures count only when so many devices have finished.', advanced: true },
  { name: 'soak_seconds', label: 'Soak time in seconds', hint: 'How long a good stage is watched before it is promoted by itself.', advanced: true },
  { name: 'device_timeout_seconds', label: 'Time limit of a device in seconds', hint: 'Then it counts as failed. 0 waits for ever.', advanced: true },
  { name: 'auto_promote', label: 'Go on to the next stage by itself', advanced: true },
  { name: 'auto_abort', label: 'Abort by itself at the failure threshold', hint: 'Otherwise it pauses and waits for a person.', advanced: true },
];

export function CampaignDialog({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  return (
    <FormDialog<CampaignInput>
      title="Create a campaign"
      schema={schemas.CreateCampaign}
      fields={fields}
      action="Save the draft"
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
