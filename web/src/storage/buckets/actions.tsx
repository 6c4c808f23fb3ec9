/** The actions on a bucket, for its row and its page. */
import { page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import type { MenuAction } from '../../ui/menu';
import { Notice } from '../../ui/notice';
import { plural } from '../../ui/number';
import { reason } from '../../ui/problem';
import { toast } from '../../ui/toast';
import { api, pageLimit, useMay, type Bucket } from '../api';
import { useRefresh } from '../live';

/** How many backups a bucket has, as in “2 backups”. Empty: none. */
async function backupsIn(bucket: Bucket): Promise<string> {
  const { items, next } = await page(api.GET('/backups', { params: { query: { bucket_id: bucket.id, limit: pageLimit } } }));
  return items.length === 0 ? '' : next === undefined ? plural(items.length, 'backup') : `more than ${plural(items.length, 'backup')}`;
}

export function useBucketActions(): (bucket: Bucket) => MenuAction[] {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const ask = (b: Bucket, backups: string) =>
    confirm({
      title: b.adopted ? `Forget ${b.name}?` : `Delete ${b.name} with its objects?`,
      body: (
        <>
          {b.adopted ? (
            <p>The bucket was taken in, so it stays in its service with its objects. Only the gateway does not know it any more.</p>
          ) : (
            <p>
              The keys of <b>{b.name}</b> are replaced, so that nobody writes any more. Then all versions of its objects are removed, and the bucket. This cannot be taken back. A large bucket takes long.
            </p>
          )}
          {backups !== '' && (
            <Notice tone="warn">
              It has {backups}. {b.adopted ? 'The gateway forgets them, too. They can be imported again when the bucket is taken in again.' : 'They are lost with it.'}
            </Notice>
          )}
        </>
      ),
      typed: b.name,
      action: b.adopted ? 'Forget the bucket' : 'Delete the bucket',
      danger: true,
      run: async () => {
        await api.DELETE('/buckets/{id}', { params: { path: { id: b.id }, query: { ...(backups !== '' && { force: true }) } } });
        await refresh();
      },
      done: `${b.name} is being ${b.adopted ? 'forgotten' : 'deleted'}.`,
    });
  const remove = (b: Bucket) => backupsIn(b).then((backups) => ask(b, backups), (e: unknown) => toast(reason(e), 'bad'));
  return (b) => ((b.state === 'bound' || b.state === 'error') && allowed('DeleteBucket') ? [{ label: b.adopted ? 'Forget…' : 'Delete…', danger: true, run: () => void remove(b) }] : []);
}
