/** The objects of a bucket, folder by folder. The folder is in the address. */
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { usePages } from '../../ui/paging';
import { bytes } from '../../ui/size';
import { Table, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { api, type Bucket, type BucketEntry } from '../api';
import { bucketPath } from '../links';

/** The folder that a folder is in. Folders end with a slash; the root is empty. */
export const folderAbove = (prefix: string) => prefix.replace(/[^/]*\/$/, '');

export function Objects({ bucket: b }: { bucket: Bucket }) {
  const [prefix] = useParam('prefix', '');
  const pages = usePages(['buckets', 'objects', b.id, prefix], (cursor, signal) => page(api.GET('/buckets/{id}/objects', { params: { path: { id: b.id }, query: { ...(prefix && { prefix }), cursor } }, signal })), { refreshSeconds: 30 });
  const pathOf = (folder: string) => `${bucketPath(b)}${folder && `?prefix=${encodeURIComponent(folder)}`}#objects`;
  const columns: readonly Column<BucketEntry>[] = [
    {
      id: 'key',
      header: 'Key',
      cell: (e) => {
        const name = e.key.slice(prefix.length) || e.key;
        return e.folder ? <Link href={pathOf(e.key)}>{name}</Link> : <code>{name}</code>;
      },
      sort: (e) => e.key,
    },
    { id: 'size', header: 'Size', cell: (e) => (e.folder ? '' : <span className="nowrap">{bytes(e.size_bytes)}</span>), sort: (e) => e.size_bytes, text: () => '', end: true },
    { id: 'modified', header: 'Modified', cell: (e) => (e.folder ? '' : <Time at={e.modified_at} />), sort: (e) => e.modified_at ?? '', text: () => '' },
  ];
  return (
    <Card flush>
      <Table
        at="objects."
        label={`Objects of ${b.name}`}
        noun="entry"
        nouns="entries"
        columns={columns}
        pages={pages}
        rowKey={(e) => e.key}
        tools={
          prefix !== '' && (
            <>
              <Link href={pathOf(folderAbove(prefix))} className="btn btn-small">
                Folder above
              </Link>
              <code>{prefix}</code>
            </>
          )
        }
        empty={{ icon: 'site', title: prefix === '' ? 'The bucket is empty' : 'The folder is empty' }}
      />
    </Card>
  );
}
