/** The files in a backup: its volumes, folders, and downloads. A helper VM reads them; see the service's package browse. */
import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { download } from '../../ui/download';
import { Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { reason } from '../../ui/problem';
import { bytes } from '../../ui/size';
import { Table, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, type BackupFile } from '../api';
import { inFolder, parents } from './path';

const above = [{ title: 'Backups', href: '/backups' }];

export function BackupFiles({ id }: { id: string }) {
  const backup = useQuery({ queryKey: ['backups', 'one', id], queryFn: ({ signal }) => body(api.GET('/api/backups/{id}', { params: { path: { id } }, signal })) });
  const volumes = useQuery({
    queryKey: ['backups', 'volumes', id],
    queryFn: ({ signal }) => body(api.GET('/api/backups/{id}/files/volumes', { params: { path: { id } }, signal })),
    staleTime: Infinity,
    retry: false,
  });
  const [chosen, choose] = useParam('volume', '');
  const readable = volumes.data?.filter((v) => v.error === '') ?? [];
  const volume = readable.find((v) => v.name === chosen) ?? readable.toSorted((a, b) => b.size_bytes - a.size_bytes)[0];
  const made = backup.data;
  return (
    <Page title={made ? `Files of ${made.vm_name}` : 'Files of a backup'} above={above} lead={made && <>As they were in the backup of <DateTime at={made.created} />.</>}>
      {volumes.error ? (
        <Failure error={volumes.error} retry={() => void volumes.refetch()} />
      ) : !volumes.data ? (
        <p className="muted" role="status">
          A helper VM without a network is starting, to read the backup. That takes some seconds.
        </p>
      ) : (
        <div className="stack">
          <Card title="Volumes">
            <ul className="plain stack-tight" aria-label="Volumes">
              {volumes.data.map((v) => (
                <li key={v.name} className="row">
                  <button type="button" className="btn btn-small" disabled={v.error !== ''} aria-pressed={v.name === volume?.name} onClick={() => choose(v.name)}>
                    {v.label || v.name}
                  </button>
                  <span className="muted small">
                    {[v.name, v.kind, bytes(v.size_bytes)].filter(Boolean).join(', ')}
                    {v.error !== '' && `: ${v.error}`}
                  </span>
                </li>
              ))}
            </ul>
          </Card>
          {volume ? <Folder key={volume.name} id={id} volume={volume.name} /> : <Notice tone="warn">None of the volumes has files that can be read.</Notice>}
        </div>
      )}
    </Page>
  );
}

const address = (volume: string, path: string) => `?${new URLSearchParams({ volume, path }).toString()}`;

function Folder({ id, volume }: { id: string; volume: string }) {
  const [path] = useParam('path', '/');
  const pages = usePages(
    ['backups', 'files', id, volume, path],
    async (after, signal) => {
      const list = await body(api.GET('/api/backups/{id}/files/list', { params: { path: { id }, query: { volume, path, ...(after && { after }) } }, signal }));
      return { items: list.entries, next: list.more ? list.entries.at(-1)?.name : undefined };
    },
    { refreshSeconds: 3600 }, // a backup does not change
  );
  const take = (f: BackupFile) => {
    const query = new URLSearchParams({ volume, path: inFolder(path, f.name) });
    void download(`/api/backups/${encodeURIComponent(id)}/files/content?${query.toString()}`, f.name).catch((e: unknown) => toast(reason(e), 'bad'));
  };
  const columns: readonly Column<BackupFile>[] = [
    {
      id: 'name',
      header: 'Name',
      cell: (f) =>
        f.type === 'folder' ? (
          <Link href={address(volume, inFolder(path, f.name))}>{f.name}/</Link>
        ) : (
          <span>
            {f.name}
            {f.target !== undefined && <span className="muted"> → {f.target}</span>}
          </span>
        ),
      text: (f) => f.name,
    },
    { id: 'size', header: 'Size', cell: (f) => (f.type === 'file' ? bytes(f.size_bytes) : ''), text: () => '' },
    { id: 'mode', header: 'Mode', cell: (f) => <code>{f.mode}</code>, text: () => '' },
    { id: 'owner', header: 'Owner', cell: (f) => `${f.uid}:${f.gid}`, text: () => '' },
    { id: 'modified', header: 'Modified', cell: (f) => <DateTime at={f.modified} />, text: () => '' },
  ];
  return (
    <Card
      title="Files"
      flush
      actions={
        <nav aria-label="Folder" className="row">
          {parents(path).map((p) => (
            <Link key={p.path} href={address(volume, p.path)}>
              {p.name}
            </Link>
          ))}
        </nav>
      }
    >
      <Table
        at="files."
        label={`Files in ${path}`}
        noun="entry"
        nouns="entries"
        columns={columns}
        pages={pages}
        rowKey={(f) => f.name}
        actions={(f) => (f.type === 'file' || f.type === 'link' ? [{ label: 'Download', run: () => take(f) }] : [])}
        empty={{ icon: 'search', title: 'The folder is empty', text: 'Its name was there when the backup was made, and nothing in it.' }}
      />
    </Card>
  );
}
