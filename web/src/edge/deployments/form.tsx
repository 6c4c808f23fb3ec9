/** The form for creating and changing a deployment. */
import { useQueryClient } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { toast } from '../../ui/toast';
import { api, schemas, type Deployment, type DeploymentInput, type DeploymentPatch } from '../api';
import { useSiteOptions } from '../site-choice';
import { parsePorts, portText } from './ports';

const settings: FieldSpec[] = [
  { name: 'image', label: 'Image', placeholder: 'ghcr.io/example/gateway:1.4', wide: true },
  { name: 'version', label: 'Version', hint: 'What people call this release.', placeholder: '1.4' },
  { name: 'desired_state', label: 'It should be' },
  { name: 'env', label: 'Environment', hint: 'One NAME=value a line. Everyone who may read the deployment sees it: no secrets here.', keepEmpty: true },
  { name: 'ports', label: 'Ports', kind: 'lines', hint: 'HOST:CONTAINER/tcp, one a line.', placeholder: '8080:80/tcp', keepEmpty: true, read: (lines) => parsePorts(lines as string[]), show: (ports) => (ports as Deployment['ports']).map(portText) },
  { name: 'pull_policy', label: 'Fetch the image', options: [{ value: 'missing', label: 'when it is missing' }, { value: 'always', label: 'at every start' }, { value: 'never', label: 'never: it must be there' }], advanced: true },
  { name: 'restart', label: 'Start it again', options: [{ value: 'always', label: 'whenever it ends' }, { value: 'on_failure', label: 'when it fails' }, { value: 'no', label: 'never' }], advanced: true },
  { name: 'health.command', label: 'Health check', hint: 'Program and arguments, one a line, run inside the container. A new version that does not become healthy is rolled back. Empty means no check.', placeholder: 'curl\n-f\nhttp://localhost/health', advanced: true, wide: true },
  { name: 'health.interval_seconds', label: 'Check every (seconds)', advanced: true },
  { name: 'health.timeout_seconds', label: 'A check may take (seconds)', advanced: true },
  { name: 'health.retries', label: 'Failures in a row', hint: 'So many make it unhealthy.', advanced: true },
  { name: 'health.start_period_seconds', label: 'Time to start (seconds)', hint: 'Failures within it do not count.', advanced: true },
];

/**
 * Without a command, there is no health check. A change sends an empty command to remove it, a new
 * deployment omits it.
 */
function withHealth<T extends { health?: { command?: string[] } }>(input: T, before: Deployment | undefined): T {
  if (input.health?.command?.length) return input;
  const { health: _, ...rest } = input;
  return (before?.health?.command.length ? { ...rest, health: { command: [] } } : rest) as T;
}

export function DeploymentDialog({ deployment, site, onClose }: { deployment?: Deployment; site?: string; onClose: () => void }) {
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const sites = useSiteOptions();
  const refresh = () => queries.invalidateQueries({ queryKey: ['deployments'] });
  const common = { two: true, wide: true, onClose } as const;
  if (deployment) {
    return (
      <FormDialog<DeploymentPatch>
        {...common}
        title={`Edit ${deployment.name}`}
        schema={schemas.PatchDeployment}
        fields={settings}
        values={deployment}
        prepare={(input) => withHealth(input, deployment)}
        action="Save"
        onSubmit={async (input) => {
          const saved = await body(api.PATCH('/deployments/{id}', { params: { path: { id: deployment.id } }, body: input }));
          await refresh();
          toast(`${saved.name} is at revision ${saved.revision}; its site takes it over.`);
          onClose();
        }}
      >
        <p className="muted small">Saving makes revision {deployment.revision + 1}. A new image or version keeps the present one to go back to.</p>
      </FormDialog>
    );
  }
  return (
    <FormDialog<DeploymentInput>
      {...common}
      title="Deploy a container"
      schema={schemas.CreateDeployment}
      fields={[{ name: 'site_id', label: 'Site', options: [{ value: '', label: 'Choose a site' }, ...sites] }, { name: 'name', label: 'Name', placeholder: 'gateway', hint: 'Lower-case letters, digits and hyphens.' }, ...settings]}
      values={{ site_id: site ?? '', desired_state: 'running', pull_policy: 'missing', restart: 'always' }}
      prepare={(input) => withHealth(input, undefined)}
      action="Deploy"
      onSubmit={async (input) => {
        const made = await body(api.POST('/deployments', { body: input }));
        await refresh();
        onClose();
        navigate(`/deployments/${encodeURIComponent(made.id)}`);
      }}
    />
  );
}
