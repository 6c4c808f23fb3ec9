/** The images that a form can propose. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { api, pageLimit, type Image, type VM } from '../api';

/** The images that are completed; undefined until they are known. */
export function useReadyImages(): readonly Image[] | undefined {
  const images = useQuery({ queryKey: ['images', 'ready'], queryFn: ({ signal }) => body(api.GET('/api/images', { params: { query: { state: 'completed', limit: pageLimit } }, signal })), staleTime: 10_000 });
  return images.data?.items;
}

type Named = Pick<Image, 'image' | 'kind' | 'shared' | 'tenant'>;

/** The names of those that a VM can have: of its own tenant, and shared ones. */
const usable = (images: readonly Named[] | undefined, vm: Pick<VM, 'tenant'>) => images?.filter((i) => i.shared || (i.tenant ?? '') === (vm.tenant ?? '')) ?? [];

/** What a disk can be a copy of. */
export const diskNames = (images: readonly Named[] | undefined, vm: Pick<VM, 'tenant'>): string[] =>
  usable(images, vm)
    .filter((i) => i.kind === 'disk')
    .map((i) => i.image);

/** What can be in the drive: installation media first, then the others. */
export const cdNames = (images: readonly Named[] | undefined, vm: Pick<VM, 'tenant'>): string[] =>
  usable(images, vm)
    .sort((a, b) => Number(b.kind === 'iso') - Number(a.kind === 'iso'))
    .map((i) => i.image);
