/** Images are listed by pool and name, and not found by name: their lists are looked through. */
import { page } from '../../ui/client';
import { ApiError } from '../../ui/problem';
import { api, pageLimit, type RBDImage } from '../api';

/** How many pages are looked through. */
const mostPages = 5;

export interface Images {
  images: RBDImage[];
  /** There are more, which were not looked at. */
  more: boolean;
}

/** The images of a cluster, and of a pool if one is named, up to the first one that is wanted. */
export async function imagesOf(query: { cluster: string; pool?: string }, signal: AbortSignal, wanted: (image: RBDImage) => boolean = () => false): Promise<Images> {
  const images: RBDImage[] = [];
  let cursor: string | undefined;
  for (let i = 0; i < mostPages; i++) {
    const { items, next } = await page(api.GET('/rbd-images', { params: { query: { ...query, limit: pageLimit, cursor } }, signal }));
    images.push(...items);
    if (next === undefined || items.some(wanted)) return { images, more: false };
    cursor = next;
  }
  return { images, more: true };
}

/** One image. Of several of a name, which others made in place of one that is missing, it is the one that is there. */
export async function imageOf(at: { cluster: string; pool: string; name: string }, signal: AbortSignal): Promise<RBDImage> {
  const { images } = await imagesOf({ cluster: at.cluster, pool: at.pool }, signal, (i) => i.name === at.name && i.state !== 'missing');
  const named = images.filter((i) => i.name === at.name);
  const found = named.find((i) => i.state !== 'missing') ?? named[0];
  if (!found) throw new ApiError(404, 'NOT_FOUND', `there is no image ${at.name} in the pool ${at.pool}`);
  return found;
}

/** The images that were made of a snapshot of an image. */
export const clonesOf = (image: Pick<RBDImage, 'cluster_id' | 'pool' | 'name'>, snapshot: string, images: readonly RBDImage[]) =>
  images.filter((i) => i.cluster_id === image.cluster_id && i.parent === `${image.pool}/${image.name}@${snapshot}`);
