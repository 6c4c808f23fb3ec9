/** Addresses of VMs. Their names are unique within a tenant, so an address names both. */
import { Link } from 'wouter';
import type { Image, VM } from './api';

/** In addresses, stands for no tenant. */
const none = '-';

export const pathOf = (name: string, tenant: string | undefined) => `/vms/${encodeURIComponent(name)}?tenant=${encodeURIComponent(tenant || none)}`;
export const vmPath = (vm: Pick<VM, 'name' | 'tenant'>) => pathOf(vm.name, vm.tenant);

/** The tenant that an address names, as the API takes it. Without one, the API finds the VM by its name alone. */
export const tenantIn = (address: string): { tenant?: string } => (address === '' ? {} : { tenant: address === none ? '' : address });

/** The parameters of requests about a VM. */
export const at = (vm: Pick<VM, 'name' | 'tenant'>) => ({ params: { path: { name: vm.name }, query: { tenant: vm.tenant ?? '' } } });

export const imagePath = (image: Pick<Image, 'id'>) => `/images/${encodeURIComponent(image.id)}`;

/** A link to the page of a VM. */
export function VMLink({ name, tenant }: { name: string | undefined; tenant: string | undefined }) {
  return name ? <Link href={pathOf(name, tenant)}>{name}</Link> : null;
}
