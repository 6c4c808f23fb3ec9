/** The catalog of images. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body, page } from '../../ui/client';
import { reason } from '../../ui/problem';
import { useConfirm } from '../../ui/confirm';
import { Copyable } from '../../ui/copy';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Icon } from '../../ui/icon';
import { Menu, type MenuAction } from '../../ui/menu';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Status } from '../../ui/status';
import { sortFor, Table, useServerList, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Image, type ImageSpec } from '../api';
import { download } from '../../ui/download';
import { bytes } from '../../ui/size';
import { Signature, signatureText } from '../states';
import { Upload } from './upload';

const columns: readonly Column<Image>[] = [
  { id: 'name', header: 'Image', cell: (i) => i.name, sort: (i) => i.name },
  { id: 'kind', header: 'Kind', cell: (i) => i.kind, sort: (i) => i.kind },
  { id: 'size', header: 'Size', cell: (i) => bytes(i.size_bytes), sort: (i) => i.size_bytes, text: () => '' },
  { id: 'signature', header: 'Signature', cell: (i) => <Signature image={i} />, sort: (i) => signatureText(i).text },
  {
    id: 'switches',
    header: 'Protection',
    cell: (i) => (
      <span className="row">
        {i.locked && <Status tone="warn" icon="ban">locked</Status>}
        {i.read_only && <Status tone="info" icon="key">read-only</Status>}
      </span>
    ),
    text: (i) => `${i.locked ? 'locked' : ''} ${i.read_only ? 'read-only' : ''}`,
  },
  { id: 'added', header: 'Added', cell: (i) => <DateTime at={i.added_at} />, sort: (i) => i.added_at, text: () => '' },
  { id: 'source', header: 'Source', cell: (i) => i.source, text: (i) => i.source },
  { id: 'sha256', header: 'SHA-256', cell: (i) => <Copyable text={i.sha256}><code className="clip">{i.sha256}</code></Copyable>, text: (i) => i.sha256, hidden: true },
];

type Asked = { what: 'add' | 'upload' } | { what: 'clone' | 'rename'; image: Image };

const sorts = { name: 'name', added: 'added_at' } as const;

export function Images() {
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const query = { ...(q && { q }), ...(sort && { sort }) };
  const may = useMay();
  const admin = may('AddImage');
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [asked, setAsked] = useState<Asked>();
  const pages = usePages(['images', 'list', query], (cursor, signal) => page(api.GET('/v1/images/catalog', { params: { query: { cursor, ...query } }, signal })), { refreshSeconds: 5 });
  const refresh = () => Promise.all(['images', 'live'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  const at = (i: Pick<Image, 'name'>) => ({ params: { path: { name: i.name } } });
  const tell = async (done: string, call: Promise<unknown>, tone: 'ok' | 'info' = 'ok') => {
    try {
      await call;
      toast(done, tone);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await refresh();
  };
  const close = async (done: string, tone: 'ok' | 'info' = 'ok') => {
    setAsked(undefined);
    toast(done, tone);
    await refresh();
  };

  const remove = (i: Image) =>
    confirm({
      title: `Remove the image ${i.name}?`,
      body: <p>No new VM can be made of it. What VMs need of it stays on disk until they are gone.</p>,
      action: 'Remove the image',
      danger: true,
      run: async () => {
        await api.DELETE('/v1/images/catalog/{name}', at(i));
        await refresh();
      },
      done: `${i.name} is removed.`,
    });
  const clean = () =>
    confirm({
      title: 'Clean up?',
      body: <p>What no image and no VM needs any more is removed from disk.</p>,
      action: 'Clean up',
      run: async () => {
        const { files, bytes: freed } = await body(api.POST('/v1/images/clean'));
        toast(`${plural(files, 'file')} removed, ${bytes(freed)} freed.`, 'info');
      },
      done: 'It is clean.',
    });
  const demo = () => void tell('The image demo is being built out of the packages of the host.', api.POST('/v1/images/demo'), 'info');

  const rowActions = (i: Image): MenuAction[] => [
    ...(i.kind === 'disk' ? [{ label: 'Export as qcow2', run: () => void download(`/v1/images/catalog/${encodeURIComponent(i.name)}/export`, `${i.name.replaceAll(':', '-')}.qcow2`).catch((e: unknown) => toast(reason(e), 'bad')) }] : []),
    ...(admin
      ? [
          i.locked
            ? { label: 'Unlock', run: () => void tell(`VMs can be made of ${i.name} again.`, api.POST('/v1/images/catalog/{name}/unlock', at(i))) }
            : { label: 'Lock', run: () => void tell(`No new VM is made of ${i.name}.`, api.POST('/v1/images/catalog/{name}/lock', at(i))) },
          { label: i.read_only ? 'Allow changes' : 'Make read-only', run: () => void tell(`${i.name} is ${i.read_only ? 'no longer' : 'now'} protected.`, api.POST('/v1/images/catalog/{name}/read-only', { ...at(i), body: { read_only: !i.read_only } })) },
          { label: 'Clone…', run: () => setAsked({ what: 'clone', image: i }) },
          { label: 'Rename…', run: () => setAsked({ what: 'rename', image: i }) },
          { label: 'Remove…', danger: true, run: () => remove(i) },
        ]
      : []),
  ];
  const add = admin && (
    <>
      <button type="button" className="btn btn-primary" onClick={() => setAsked({ what: 'upload' })}>
        Upload an image
      </button>
      <Menu
        label="More of images"
        className=""
        button={<>More <Icon name="chevron" /></>}
        actions={[
          { label: 'Add one that lies on the host…', run: () => setAsked({ what: 'add' }) },
          { label: 'Build the demo image', run: demo },
          { label: 'Clean up…', run: clean },
        ]}
      />
    </>
  );
  return (
    <Page title="Images" lead="What VMs are made of: disks, kernels with an initial RAM disk, and root file systems of sandboxes." actions={add}>
      <Card flush>
        <Table
          label="Images"
          noun="image"
          columns={columns}
          pages={pages}
          rowKey={(i) => i.name}
          actions={rowActions}
          server={{ search: 'Name, kind, source or SHA-256', sort: Object.keys(sorts) }}
          bulk={
            admin
              ? [
                  { label: 'Lock', applies: (i: Image) => !i.locked, body: 'No new VMs are made of them until they are unlocked.', run: (i: Image) => api.POST('/v1/images/catalog/{name}/lock', at(i)), after: refresh },
                  { label: 'Unlock', applies: (i: Image) => i.locked, body: 'VMs can be made of them again.', run: (i: Image) => api.POST('/v1/images/catalog/{name}/unlock', at(i)), after: refresh },
                  { label: 'Remove', body: 'No new VM can be made of them. What VMs need of them stays on disk until they are gone.', danger: true, run: (i: Image) => api.DELETE('/v1/images/catalog/{name}', at(i)), after: refresh },
                ]
              : []
          }
          empty={{ icon: 'deployment', title: 'The catalog is empty', text: 'The demo image is a small guest that boots in seconds, to try things with.', action: admin ? <button type="button" className="btn" onClick={demo}>Build the demo image</button> : undefined }}
        />
      </Card>
      {asked?.what === 'upload' && <Upload onClose={() => setAsked(undefined)} onDone={(name) => void close(`${name} is uploaded, and being taken in.`, 'info')} />}
      {asked?.what === 'add' && (
        <FormDialog<ImageSpec>
          title="Add an image that lies on the host"
          schema={schemas.AddImage}
          fields={[
            { name: 'name', label: 'Name' },
            { name: 'path', label: 'Path', hint: 'Of a disk image, or of a folder with the root file system of sandboxes' },
            { name: 'signature', label: 'Minisign signature', kind: 'multiline' },
            { name: 'kernel', label: 'Kernel', hint: 'Instead of a path: of a guest that boots without a disk', advanced: true },
            { name: 'initrd', label: 'Initial RAM disk', advanced: true },
            { name: 'kernel_args', label: 'Kernel arguments', advanced: true },
          ]}
          action="Add the image"
          onClose={() => setAsked(undefined)}
          onSubmit={async (input) => {
            await api.POST('/v1/images/catalog', { body: input });
            await close(`${input.name} is being taken in.`, 'info');
          }}
        />
      )}
      {(asked?.what === 'clone' || asked?.what === 'rename') && (
        <FormDialog<{ name: string }>
          title={asked.what === 'clone' ? `Give ${asked.image.name} a second name` : `Rename ${asked.image.name}`}
          schema={asked.what === 'clone' ? schemas.CloneImage : schemas.RenameImage}
          fields={[{ name: 'name', label: asked.what === 'clone' ? 'Second name' : 'New name' }]}
          values={{ name: asked.what === 'clone' ? `${asked.image.name}-copy` : asked.image.name }}
          action={asked.what === 'clone' ? 'Clone the image' : 'Rename the image'}
          onClose={() => setAsked(undefined)}
          onSubmit={async (input) => {
            const call = { ...at(asked.image), body: input };
            await (asked.what === 'clone' ? api.POST('/v1/images/catalog/{name}/clone', call) : api.POST('/v1/images/catalog/{name}/rename', call));
            await close(`${input.name} is there.`);
          }}
        />
      )}
    </Page>
  );
}
