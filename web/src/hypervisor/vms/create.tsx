/** The form for a new VM. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { ApiError } from '../../ui/problem';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { api, pageLimit, schemas, useMay, type VM, type VMSpec } from '../api';

/**
 * The field that exceeds a limit of the policy. The daemon always names the limit, but not always
 * the field.
 */
export function limitField(error: unknown): string | undefined {
  if (!(error instanceof ApiError)) return undefined;
  if (error.field !== undefined && error.field !== '') return error.field;
  const limit = error.limit?.split('.').at(-1) ?? '';
  const fields = { max_vcpus: 'vcpus', max_memory_mib: 'memory_mib', max_disk_gib: 'disk_gib', max_ttl_seconds: 'ttl_seconds', allowed_backends: 'backend', allowed_image_dirs: 'image' };
  return fields[limit.replace(/_total$/, '') as keyof typeof fields];
}

/** Makes the form show the error at the field that it is about. */
function atField(error: unknown): unknown {
  const field = limitField(error);
  return error instanceof ApiError && field ? new ApiError(error.status, error.code, error.message, field, error.requestId, error.limit) : error;
}

const fields = (images: readonly string[], admin: boolean): FieldSpec[] => [
  { name: 'name', label: 'Name' },
  { name: 'image', label: 'Image', suggestions: images, placeholder: images[0] },
  { name: 'vcpus', label: 'Processors' },
  { name: 'memory_mib', label: 'Memory in MiB' },
  { name: 'disk_gib', label: 'Disk in GiB' },
  { name: 'network.mode', label: 'Network' },
  { name: 'start', label: 'Start it' },
  { name: 'autostart', label: 'Start it whenever the host starts', hint: '' },
  { name: 'backend', label: 'Backend', advanced: true },
  ...(admin ? [{ name: 'tenant', label: 'Tenant', advanced: true }] : []),
  { name: 'ttl_seconds', label: 'Life in seconds', advanced: true },
  { name: 'firmware', label: 'Firmware', advanced: true },
  { name: 'kernel', label: 'Kernel', advanced: true },
  { name: 'initrd', label: 'Initial RAM disk', hint: 'Path on the host; goes with a kernel', advanced: true },
  { name: 'kernel_args', label: 'Kernel arguments', advanced: true },
  { name: 'storage', label: 'Storage', advanced: true },
  { name: 'network.bridge', label: 'Bridge', advanced: true },
  { name: 'network.ip', label: 'Address', advanced: true },
  { name: 'labels', label: 'Labels', advanced: true, wide: true },
  { name: 'cloud_init.hostname', label: 'Host name in the guest', advanced: true },
  { name: 'cloud_init.ssh_authorized_keys', label: 'SSH keys', advanced: true, wide: true },
  { name: 'cloud_init.user_data', label: 'cloud-init user data', kind: 'multiline', advanced: true, wide: true, placeholder: '#cloud-config' },
];

/** An empty disk is useful for installing a system on it, but usually the image was forgotten. */
export function bootsNothing(spec: Partial<VMSpec>): string | undefined {
  return spec.image || spec.kernel ? undefined : 'Without an image or a kernel the VM gets an empty disk, and boots nothing.';
}

export function CreateVM({ onClose, onMade }: { onClose: () => void; onMade: (vm: VM) => void }) {
  const admin = useMay()('ListAudit');
  const queries = useQueryClient();
  const images = useQuery({ queryKey: ['images', 'names'], queryFn: ({ signal }) => body(api.GET('/v1/images/catalog', { params: { query: { limit: pageLimit } }, signal })) });
  const names = images.data?.filter((i) => !i.locked).map((i) => i.name) ?? [];
  return (
    <FormDialog<VMSpec>
      title="Create a VM"
      wide
      two
      schema={schemas.CreateVM}
      fields={fields(names, admin)}
      values={{ backend: 'auto', start: true }}
      warning={bootsNothing}
      action="Create the VM"
      onClose={onClose}
      onSubmit={async (spec) => {
        try {
          const vm = await body(api.POST('/v1/vms', { body: spec }));
          await queries.invalidateQueries({ queryKey: ['vms'] });
          onMade(vm);
        } catch (e) {
          throw atField(e);
        }
      }}
    />
  );
}
