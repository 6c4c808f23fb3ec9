/** The form for a new VM. */
import { useQueryClient } from '@tanstack/react-query';
import { body } from '../../ui/client';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { api, schemas, useMay, type VM, type VMSpec } from '../api';
import { useImages } from '../images/names';
import { atField } from '../refused';
import { useTemplates } from '../templates/names';

const fields = (images: readonly string[], templates: readonly string[], admin: boolean): FieldSpec[] => [
  { name: 'name', label: 'Name' },
  { name: 'image', label: 'Image', suggestions: images, placeholder: images[0] },
  { name: 'vcpus', label: 'Processors' },
  { name: 'memory_mib', label: 'Memory in MiB' },
  { name: 'disk_gib', label: 'Disk in GiB' },
  { name: 'network.mode', label: 'Network' },
  { name: 'start', label: 'Start it' },
  { name: 'autostart', label: 'Start it whenever the host starts', hint: '' },
  { name: 'instant', label: 'Start from a template that fits', hint: 'Its first start takes a fraction of the time of a boot. Without a template that fits, it boots.', advanced: true },
  { name: 'template', label: 'Template', suggestions: templates, when: (d) => d['instant'] === true, hint: 'The only one that it may start from. If it does not fit, the VM boots.', advanced: true },
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
  const images = useImages().map((i) => i.name);
  const templates = useTemplates().map((t) => t.name);
  return (
    <FormDialog<VMSpec>
      title="Create a VM"
      wide
      two
      schema={schemas.CreateVM}
      fields={fields(images, templates, admin)}
      values={{ backend: 'auto', start: true }}
      warning={bootsNothing}
      action="Create the VM"
      onClose={onClose}
      onSubmit={async (spec) => {
        const vm = await body(atField(api.POST('/v1/vms', { body: spec })));
        await queries.invalidateQueries({ queryKey: ['vms'] });
        onMade(vm);
      }}
    />
  );
}
