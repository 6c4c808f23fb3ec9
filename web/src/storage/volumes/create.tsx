/** Making a volume: how it is called, how large it is, and by which policy. */
import { useQuery } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import { Dialog } from '../../ui/dialog';
import { FormDialog } from '../../ui/form';
import { Failure } from '../../ui/notice';
import { atField } from '../../ui/problem';
import { api, pageLimit, schemas, useSeesAll, type Backend, type Policy, type VolumeSpec } from '../api';
import { useBackends, volumePath } from '../links';
import { useRefresh } from '../live';
import { bytesAt } from '../refused';
import { useTenants } from '../tenants';
import { sizeField } from './sizes';

/** The policy that the service takes when none is named. */
const usualPolicy = 'default';

export const usePolicies = () =>
  useQuery({ queryKey: ['policies', 'all'], queryFn: ({ signal }) => body(api.GET('/policies', { params: { query: { limit: pageLimit } }, signal })), refetchInterval: 30_000 });

export const policyText = (p: Pick<Policy, 'name' | 'kind' | 'description'>) => `${p.name}: ${p.description || p.kind}`;

/** Why a volume cannot be made in the backend of a policy now. */
export function unready(backend: Backend | undefined): string | undefined {
  if (backend?.cordoned) return `The backend ${backend.name} is cordoned: nothing new is made there. Choose another policy, or uncordon the backend first.`;
  if (backend && backend.last_error !== '') return `The backend ${backend.name} does not answer now. The volume is made when it does.`;
  return undefined;
}

export function CreateVolume({ onClose }: { onClose: () => void }) {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const seesAll = useSeesAll();
  const known = usePolicies();
  const policies = known.data;
  const backends = useBackends().data;
  const tenants = useTenants();
  // The form knows its choices from the beginning.
  if (!policies) {
    return known.error ? (
      <Dialog title="Create a volume" onClose={onClose}>
        <div className="dialog-body">
          <Failure error={known.error} retry={() => void known.refetch()} />
        </div>
      </Dialog>
    ) : null;
  }
  const backendOf = (policy: string | undefined) => backends?.find((b) => b.id === policies.find((p) => p.name === policy)?.backend_id);
  return (
    <FormDialog<VolumeSpec>
      title="Create a volume"
      schema={schemas.CreateVolume}
      fields={[
        { name: 'name', label: 'Name', hint: 'Unique within its tenant' },
        sizeField('size_bytes', 'Size'),
        { name: 'policy', label: 'Policy', options: policies.map((p) => ({ value: p.name, label: policyText(p) })), hint: 'Says where the volume is, and of which kind' },
        ...(seesAll ? [{ name: 'tenant_id', label: 'Tenant', suggestions: tenants.map((t) => t.name), hint: 'Empty: it belongs to no tenant' }] : []),
        { name: 'owner.product', label: 'Product that it is for', advanced: true },
        { name: 'owner.resource_id', label: 'What it is for there', advanced: true, hint: 'The id of a resource of the product' },
      ]}
      values={{ policy: policies.some((p) => p.name === usualPolicy) ? usualPolicy : policies[0]?.name }}
      warning={(input) => {
        if (policies.length === 0) return 'There is no policy that volumes can be made by. Add one under Policies first.';
        const backend = backendOf(input.policy);
        return unready(backend);
      }}
      action="Create the volume"
      onClose={onClose}
      onSubmit={async (input) => {
        const { resource } = await atField(body(api.POST('/volumes', { body: input })), bytesAt('size_bytes'));
        onClose();
        await refresh();
        navigate(volumePath({ id: resource.volume_id }));
      }}
    />
  );
}
