/** The images that a form can propose. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { api, pageLimit, type Image } from '../api';

/** The images of the catalog that are not locked, by name; none until they are known. */
export function useImages(): Image[] {
  const images = useQuery({ queryKey: ['images', 'names'], queryFn: ({ signal }) => body(api.GET('/v1/images/catalog', { params: { query: { limit: pageLimit } }, signal })) });
  return images.data?.filter((i) => !i.locked) ?? [];
}
