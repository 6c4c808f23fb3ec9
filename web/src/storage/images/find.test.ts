import { afterEach, expect, it, vi } from 'vitest';
import { ApiError } from '../../ui/problem';
import { api, type RBDImage } from '../api';
import { clonesOf, imageOf, imagesOf } from './find';

const image = (name: string, more: Partial<RBDImage> = {}) => ({ cluster_id: 'c1', pool: 'rbd', name, parent: '', state: 'available', ...more }) as RBDImage;

const { signal } = new AbortController();

/** Pages of the list, each but the last with a link to the next one. */
function answers(...pages: RBDImage[][]) {
  let n = 0;
  vi.spyOn(api, 'GET').mockImplementation(() => {
    const data = pages[n++];
    return Promise.resolve({ data, response: new Response(null, { headers: n < pages.length ? { Link: `</x?cursor=${n}>; rel="next"` } : {} }) }) as never;
  });
  return () => n;
}

afterEach(() => void vi.restoreAllMocks());

it('an image is looked for until it is found', async () => {
  const asked = answers([image('a')], [image('disk')], [image('z')]);
  expect((await imageOf({ cluster: 'c1', pool: 'rbd', name: 'disk' }, signal)).name).toBe('disk');
  expect(asked()).toBe(2);
});

it('of two with one name, it is the one that is there', async () => {
  answers([image('disk', { state: 'missing', id: 'old' }), image('disk', { id: 'new' })]);
  expect((await imageOf({ cluster: 'c1', pool: 'rbd', name: 'disk' }, signal)).id).toBe('new');
});

it('one that is not there is not found', async () => {
  answers([image('a')]);
  await expect(imageOf({ cluster: 'c1', pool: 'rbd', name: 'disk' }, signal)).rejects.toMatchObject({ status: 404 } satisfies Partial<ApiError>);
});

it('a list that is too long says that there is more', async () => {
  answers(...Array.from({ length: 9 }, () => [image('a')]));
  const { images, more } = await imagesOf({ cluster: 'c1' }, signal);
  expect([images.length, more]).toEqual([5, true]);
});

it('clones are those whose parent is the snapshot, in the same cluster', () => {
  const all = [image('a', { parent: 'rbd/disk@before' }), image('b', { parent: 'rbd/disk@after' }), image('c', { parent: 'rbd/disk@before', cluster_id: 'c2' })];
  expect(clonesOf(image('disk'), 'before', all).map((i) => i.name)).toEqual(['a']);
});
