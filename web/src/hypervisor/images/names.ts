/** The images that a form can propose. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { api, pageLimit, type Image } from '../api';

/** The images of the catalog that are not locked, by name; none until they are known. */
export function useImages(): Image[] {
  const images = useQuery({ queryKey: ['images', 'names'], queryFn: ({ signal }) => body(api.GET('/v1/images/catalog', { params: { query: { limit: pageLimit } }, signal })) });
  return images.data?.filter((i) => !i.locked) ?? [];
}

/**
 * Whether an image looks like a CD. The catalog does not know: to it, a CD is a disk like any
 * other.
 */
export const looksLikeCD = (i: Pick<Image, 'name' | 'source'>) => /\.iso$/i.test(i.source) || /(^|[^a-z])(iso|cd|dvd)($|[^a-z])/i.test(i.name);

/** The names of the disks, first of those that look like CDs. */
export const cdNames = (images: readonly Pick<Image, 'name' | 'source' | 'kind'>[]): string[] =>
  images
    .filter((i) => i.kind === 'disk')
    .sort((a, b) => Number(looksLikeCD(b)) - Number(looksLikeCD(a)))
    .map((i) => i.name);
