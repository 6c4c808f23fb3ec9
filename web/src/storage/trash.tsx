/** What was deleted and can be brought back: restore it, or remove it for ever. */
import { useDeferredValue, useState } from 'react';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { Card } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import type { Schema } from '../ui/schema';
import { bytes } from '../ui/size';
import { Status } from '../ui/status';
import { Table, type Column } from '../ui/table';
import { EndTime, Time } from '../ui/time';
import { toast } from '../ui/toast';
import { api, schemas, useMay, useSeesAll, type TrashItem, type Undelete } from './api';
import { useBackendNames } from './links';
import { useRefresh } from './live';
import { spanField } from './spans';

const day = 86_400;

/** The longest that something stays in the trash. */
const longest = 30 * day;

const spanSchema: Schema = { type: 'object', required: ['trash_secs'], properties: { trash_secs: { type: 'integer', minimum: 60, maximum: longest } } };

/** Asks for how long something is kept, and moves it to the trash. */
export function MoveToTrash({ name, what, onClose, move }: { name: string; what: 'volume' | 'image'; onClose: () => void; move: (trashSecs: number) => Promise<unknown> }) {
  return (
    <FormDialog<{ trash_secs: number }>
      title={`Move ${name} to the trash`}
      schema={spanSchema}
      fields={[spanField('trash_secs', 'Keep it for', { hint: 'At most 30 days' }, 60)]}
      values={{ trash_secs: 7 * day }}
      action="Move it to the trash"
      onClose={onClose}
      onSubmit={async (input) => {
        await move(input.trash_secs);
        onClose();
        toast(`${name} is being moved to the trash.`);
      }}
    >
      <p>
        Until its time is over, the {what} can be brought back with its content. It takes room meanwhile, and counts for the quota of its tenant. Its schedules are removed. One that has snapshots or that clients have open stays where it is.
      </p>
    </FormDialog>
  );
}

const columnsWith = (nameOf: (cluster: string) => string | undefined): readonly Column<TrashItem>[] => [
  { id: 'name', header: 'Name', cell: (i) => i.name, sort: (i) => i.name },
  {
    id: 'state',
    header: 'State',
    cell: (i) => (
      <span className="stack-tight">
        {i.state === 'deleting' ? <Status tone="info">being removed</Status> : <Status tone="idle">kept</Status>}
        {i.last_error !== '' && <span className="small bad">{i.last_error}</span>}
      </span>
    ),
    sort: (i) => i.state,
    text: (i) => i.last_error,
  },
  { id: 'size', header: 'Size', cell: (i) => bytes(i.size_bytes), sort: (i) => i.size_bytes, text: () => '' },
  { id: 'backend', header: 'Backend', cell: (i) => nameOf(i.cluster_id) ?? <span className="muted">not known</span>, sort: (i) => nameOf(i.cluster_id) ?? '' },
  { id: 'pool', header: 'Pool', cell: (i) => i.pool, sort: (i) => i.pool },
  { id: 'deleted', header: 'Deleted', cell: (i) => <Time at={i.deleted_at} />, sort: (i) => i.deleted_at, text: () => '' },
  { id: 'by', header: 'By', cell: (i) => i.deleted_by, sort: (i) => i.deleted_by },
  { id: 'purge', header: 'Is removed', cell: (i) => <EndTime at={i.purge_at} never="never" />, sort: (i) => i.purge_at, text: () => '' },
  { id: 'kind', header: 'Kind', cell: (i) => i.kind, sort: (i) => i.kind, hidden: true },
  { id: 'tenant', header: 'Tenant', cell: (i) => i.tenant_id, sort: (i) => i.tenant_id, hidden: true },
];

const at = (i: TrashItem) => ({ params: { path: { id: i.id } } });

export function Trash() {
  const seesAll = useSeesAll();
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const nameOf = useBackendNames();
  const [tenant, setTenant] = useParam('tenant', '');
  const [restoring, setRestoring] = useState<TrashItem>();
  const wanted = useDeferredValue(tenant.trim());
  const query = wanted ? { tenant: wanted } : {};
  const pages = usePages(['trash', 'list', query], (cursor, signal) => page(api.GET('/trash', { params: { query: { ...query, cursor } }, signal })), { refreshSeconds: 5 });
  const purge = (i: TrashItem) =>
    confirm({
      title: `Remove ${i.name} for ever?`,
      body: (
        <p>
          <b>{i.name}</b> with {bytes(i.size_bytes)} cannot be brought back any more.
        </p>
      ),
      typed: i.name,
      action: 'Remove it for ever',
      danger: true,
      run: async () => {
        await api.DELETE('/trash/{id}', at(i));
        await refresh();
      },
      done: `${i.name} is being removed for ever.`,
    });
  return (
    <Page title="Trash" lead="Volumes and images that were deleted and are kept for a while. They take room, and count for the quota of their tenant.">
      <Card flush>
        <Table
          label="Trash"
          noun="item"
          columns={columnsWith(nameOf).filter((c) => seesAll || c.id !== 'tenant')}
          pages={pages}
          rowKey={(i) => i.id}
          actions={(i) => [
            ...(i.state === 'trashed' && allowed('RestoreTrash') ? [{ label: 'Bring back…', run: () => setRestoring(i) }] : []),
            ...(i.state === 'trashed' && allowed('PurgeTrash') ? [{ label: 'Remove for ever…', danger: true, run: () => purge(i) }] : []),
          ]}
          tools={seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
          empty={wanted ? { icon: 'search', title: 'Nothing matches' } : { icon: 'trash', title: 'The trash is empty', text: 'Volumes and images come here when they are moved to the trash instead of being deleted.' }}
        />
      </Card>
      {restoring && (
        <FormDialog<Undelete>
          title={`Bring back ${restoring.name}`}
          schema={schemas.RestoreTrash}
          fields={[{ name: 'name', label: 'Name', hint: 'What it is called then. It needs another name if something has its own by now' }]}
          values={{ name: restoring.name }}
          action="Bring it back"
          onClose={() => setRestoring(undefined)}
          onSubmit={async (input) => {
            await body(api.POST('/trash/{id}/restore', { ...at(restoring), body: input }));
            setRestoring(undefined);
            toast(`${restoring.name} is being brought back.`);
            await refresh();
          }}
        />
      )}
    </Page>
  );
}
