/** The templates, from whose memory VMs start. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import { page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Copyable } from '../../ui/copy';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { plural } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { bytes, mib } from '../../ui/size';
import { Status } from '../../ui/status';
import { Table, type Column } from '../../ui/table';
import { DateTime } from '../../ui/time';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Template, type TemplateSpec } from '../api';
import { useImages } from '../images/names';
import { useLive } from '../live';
import { OperationTable } from '../operations';
import { atField } from '../refused';
import { underWay } from '../states';

const columns: readonly Column<Template>[] = [
  { id: 'name', header: 'Template', cell: (t) => t.name, sort: (t) => t.name },
  { id: 'image', header: 'Image', cell: (t) => <Link href={`/images?filter=${encodeURIComponent(t.image)}`}>{t.image}</Link>, sort: (t) => t.image },
  { id: 'state', header: 'State', cell: (t) => <State template={t} />, sort: (t) => String(t.usable), text: (t) => (t.usable ? 'usable' : `not usable ${t.detail}`) },
  { id: 'fits', header: 'Size', cell: (t) => <span className="nowrap">{plural(t.vcpus, 'vCPU')}, {mib(t.memory_mib)}</span>, sort: (t) => t.memory_mib, text: () => '' },
  { id: 'network', header: 'Network', cell: (t) => (t.network ? 'yes' : 'no'), sort: (t) => String(t.network), text: () => '' },
  { id: 'disk', header: 'Disk', cell: (t) => (t.disk_bytes > 0 ? <span className="nowrap">{bytes(t.disk_bytes)}</span> : <span className="muted">none</span>), sort: (t) => t.disk_bytes, text: () => '', end: true },
  { id: 'size', header: 'On the host', cell: (t) => <span className="nowrap">{bytes(t.size_bytes)}</span>, sort: (t) => t.size_bytes, text: () => '', end: true },
  { id: 'created', header: 'Made', cell: (t) => <DateTime at={t.created_at} />, sort: (t) => t.created_at, text: () => '' },
  { id: 'backend', header: 'Made with', cell: (t) => `QEMU ${t.backend_version}, ${t.accelerator}`, text: (t) => `${t.backend_version} ${t.accelerator}`, hidden: true },
  { id: 'machine', header: 'Machine', cell: (t) => `${t.machine}, ${t.cpu}`, text: (t) => `${t.machine} ${t.cpu}`, hidden: true },
  { id: 'agent', header: 'Agent', cell: (t) => t.agent_version, text: (t) => t.agent_version, hidden: true },
  { id: 'sha256', header: 'SHA-256 of the image', cell: (t) => <Copyable text={t.sha256}><code className="clip">{t.sha256}</code></Copyable>, text: (t) => t.sha256, hidden: true },
];

function State({ template: t }: { template: Template }) {
  if (t.usable) return <Status tone="ok">usable</Status>;
  return (
    <>
      <Status tone="warn">not usable</Status> <span className="muted small">{t.detail}</span>
    </>
  );
}

export function Templates() {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const images = useImages();
  const { host, operations } = useLive();
  const [making, setMaking] = useState(false);
  const pages = usePages(['templates', 'list'], (cursor, signal) => page(api.GET('/v1/templates', { params: { query: { cursor } }, signal })), { refreshSeconds: 5 });
  const refresh = () => Promise.all(['templates', 'live'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  const at = (t: Template) => ({ params: { path: { name: t.name } } });

  const remove = (t: Template) =>
    confirm({
      title: `Delete the template ${t.name}?`,
      body: (
        <p>
          VMs that started from it keep running. New VMs of <b>{t.image}</b> with {plural(t.vcpus, 'processor')} and {mib(t.memory_mib)} boot, unless another template fits.
        </p>
      ),
      action: 'Delete the template',
      danger: true,
      run: async () => {
        await api.DELETE('/v1/templates/{name}', at(t));
        await refresh();
      },
      done: `${t.name} is deleted.`,
    });
  const make = may('CreateTemplate') && (
    <button type="button" className="btn btn-primary" onClick={() => setMaking(true)}>
      Create a template
    </button>
  );
  const busy = operations?.filter((o) => o.kind === 'template.create' && underWay(o)) ?? [];
  const taken = host?.template_bytes ?? 0;
  return (
    <Page title="Templates" lead={`VMs with their memory, from which others start in a fraction of the time of a boot.${taken > 0 ? ` They take ${bytes(taken)} of the host’s disk.` : ''}`} actions={make}>
      <div className="stack">
        {busy.length > 0 && (
          <Card title="Under way" actions={<Link href="/operations">All operations</Link>} flush>
            <OperationTable brief label="Templates under way" rows={busy} />
          </Card>
        )}
        <Card flush>
          <Table
            label="Templates"
            noun="template"
            columns={columns}
            pages={pages}
            rowKey={(t) => t.id}
            actions={(t) => (may('DeleteTemplate') ? [{ label: 'Delete…', danger: true, run: () => remove(t) }] : [])}
            bulk={may('DeleteTemplate') ? [{ label: 'Delete', body: 'VMs that started from them keep running. New VMs boot, unless another template fits.', danger: true, run: (t: Template) => api.DELETE('/v1/templates/{name}', at(t)), after: refresh }] : []}
            empty={{ icon: 'event', title: 'There are no templates', text: 'A VM of the image, with the memory and processors that VMs will have, is booted once and kept as it is then. Theirs start from there.', action: make || undefined }}
          />
        </Card>
      </div>
      {making && (
        <FormDialog<TemplateSpec>
          title="Create a template"
          schema={schemas.CreateTemplate}
          two
          fields={[
            { name: 'image', label: 'Image', suggestions: images.filter((i) => i.kind !== 'rootfs').map((i) => i.name), hint: 'It must have the guest agent' },
            { name: 'name', label: 'Name' },
            { name: 'vcpus', label: 'Processors' },
            { name: 'memory_mib', label: 'Memory in MiB' },
            { name: 'network', label: 'With a network device', hint: 'VMs with the network mode none take a template without one' },
          ]}
          action="Create the template"
          onClose={() => setMaking(false)}
          onSubmit={async (input) => {
            await atField(api.POST('/v1/templates', { body: input }));
            setMaking(false);
            toast(`The template of ${input.image} is being made.`, 'info');
            await refresh();
          }}
        >
          <p className="muted small">A VM boots, is kept with its memory as soon as its agent is ready, and is removed. VMs start from the template if they have the same image, processors, memory and kind of network.</p>
        </FormDialog>
      )}
    </Page>
  );
}
