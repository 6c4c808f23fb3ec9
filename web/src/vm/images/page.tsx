/** All images that the caller may make VMs of, and the installers among them. */
import { useDeferredValue, useState } from 'react';
import { useParam } from '../../ui/address';
import { body } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Meter } from '../../ui/progress';
import { bytes } from '../../ui/size';
import { Choice, Table, useServerList, type Column } from '../../ui/table';
import { Tabs } from '../../ui/tabs';
import { Time } from '../../ui/time';
import { Allowed, api, useMay, useSeesAll, type Image, type ImageState } from '../api';
import { imagePath } from '../links';
import { useLive } from '../live';
import { loadPart } from '../offset';
import { ImageBadge, imageStates, inMaking, underWay } from '../states';
import { useImageActions } from './actions';
import { MakeImage, type Making } from './forms';
import { originText } from './origin';

const makings: readonly { what: Making; label: string; operation: 'BuildImage' | 'DownloadImage' | 'ImportImage' }[] = [
  { what: 'import', label: 'Import…', operation: 'ImportImage' },
  { what: 'download', label: 'Download…', operation: 'DownloadImage' },
  { what: 'build', label: 'Build an image', operation: 'BuildImage' },
];

export function Images() {
  const [making, setMaking] = useState<Making>();
  return (
    <Page
      title="Images"
      lead="What VMs are made of: built of packages, downloaded, or taken in from a file of the host."
      actions={makings.map(({ what, label, operation }) => (
        <Allowed key={what} operation={operation}>
          <button type="button" className={`btn ${what === 'build' ? 'btn-primary' : ''}`} onClick={() => setMaking(what)}>
            {label}
          </button>
        </Allowed>
      ))}
    >
      <Tabs
        label="Parts of images"
        inAddress
        tabs={[
          { id: 'all', label: 'Images', content: () => <All /> },
          { id: 'iso', label: 'Installers', content: () => <Installers /> },
        ]}
      />
      {making && <MakeImage what={making} onClose={() => setMaking(undefined)} />}
    </Page>
  );
}

/** How far the job of an image is. Jobs of others are not seen. */
function Progress({ image: i }: { image: Image }) {
  const job = useLive().jobs?.find((j) => j.id === i.job_id);
  return job && (inMaking(i) || underWay(job)) ? <Meter progress={job.progress} failed={job.status === 'failed'} /> : null;
}

const columns: readonly Column<Image>[] = [
  { id: 'name', header: 'Image', cell: (i) => i.name, text: (i) => i.name },
  {
    id: 'state',
    header: 'State',
    cell: (i) => (
      <span className="stack-tight">
        <span className="row">
          <ImageBadge image={i} />
        </span>
        <Progress image={i} />
      </span>
    ),
    text: (i) => i.state,
  },
  { id: 'kind', header: 'Kind', cell: (i) => (i.kind === 'iso' ? 'installer' : 'disk'), text: (i) => i.kind },
  { id: 'size', header: 'Size', cell: (i) => (i.state === 'completed' ? <span className="nowrap">{i.kind === 'iso' ? bytes(i.size_bytes) : `${bytes(i.virtual_size_bytes)}, takes ${bytes(i.size_bytes)}`}</span> : '') },
  { id: 'origin', header: 'Origin', cell: originText, text: originText },
  { id: 'tenant', header: 'Tenant', cell: (i) => (i.shared ? <span className="muted">shared by all</span> : (i.tenant ?? <span className="muted">none</span>)), text: (i) => i.tenant ?? '' },
  { id: 'created', header: 'Created', cell: (i) => <Time at={i.created} /> },
  { id: 'error', header: 'Error', cell: (i) => i.error, text: (i) => i.error ?? '', hidden: true },
];

function All() {
  const { q } = useServerList();
  const seesAll = useSeesAll();
  const may = useMay();
  const { actions, dialog } = useImageActions();
  const [state, setState] = useParam<ImageState | ''>('state', '', imageStates);
  const [tenant, setTenant] = useParam('tenant', '');
  const wantedTenant = useDeferredValue(tenant.trim());
  const query = { ...(state && { state }), ...(wantedTenant && { tenant: wantedTenant }), ...(q && { q }) };
  const pages = usePages(['images', 'list', query], (cursor, signal) => loadPart(cursor, (part) => body(api.GET('/api/images', { params: { query: { ...query, ...part } }, signal }))), { refreshSeconds: 3 });
  return (
    <Card flush>
      <Table
        label="Images"
        noun="image"
        columns={columns}
        pages={pages}
        rowKey={(i) => i.id}
        href={imagePath}
        actions={actions}
        server={{ search: 'Name, distribution or tenant', sort: [] }}
        tools={
          <>
            <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...imageStates.map((s) => ({ value: s, label: s }))]} onChange={setState} />
            {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
          </>
        }
        empty={
          Object.keys(query).length > 0
            ? { icon: 'search', title: 'No image matches' }
            : { icon: 'server', title: 'There are no images', text: `${may('BuildImage') ? 'Build one of a distribution’s packages, or download a distribution’s own. ' : ''}Images that are only in the hypervisor’s catalog are not listed here; VMs can be made of them by their names.` }
        }
      />
      {dialog}
    </Card>
  );
}

function Installers() {
  const { actions, dialog } = useImageActions();
  const pages = usePages(['images', 'iso'], (cursor, signal) => loadPart(cursor, (part) => body(api.GET('/api/images/iso', { params: { query: part }, signal }))), { refreshSeconds: 3 });
  return (
    <Card flush>
      <Table
        at="iso."
        label="Installers"
        noun="installer"
        columns={columns.filter((c) => c.id !== 'kind')}
        pages={pages}
        rowKey={(i) => i.id}
        href={imagePath}
        actions={actions}
        server={{ sort: [] }}
        empty={{ icon: 'server', title: 'There are no installers', text: 'An installer is an ISO image, downloaded or imported. A VM of one boots it.' }}
      />
      {dialog}
    </Card>
  );
}
