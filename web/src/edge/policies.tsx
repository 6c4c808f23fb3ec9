/** Policy packs: which images sites may run, with a test for images. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useCaller } from '../ui/access';
import { body, page } from '../ui/client';
import type { BulkAction } from '../ui/bulk';
import { useConfirm } from '../ui/confirm';
import type { FieldSpec } from '../ui/draft';
import { Card } from '../ui/facts';
import { Form, FormDialog } from '../ui/form';
import type { MenuAction } from '../ui/menu';
import { Notice } from '../ui/notice';
import { plural } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import { toast } from '../ui/toast';
import { Allowed, api, schemas, useMay, type ImageCheck, type ImageVerdict, type PolicyPack, type PolicyPackInput } from './api';
import { SiteLink } from './links';
import { useSiteOptions } from './site-choice';
import { Enabled } from './states';

const columns: Column<PolicyPack>[] = [
  { id: 'name', header: 'Name', cell: (p) => p.name, sort: (p) => p.name },
  { id: 'enabled', header: 'Status', cell: (p) => <Enabled enabled={p.enabled} />, sort: (p) => (p.enabled ? 'enabled' : 'disabled') },
  { id: 'site', header: 'Applies to', cell: (p) => <SiteLink id={p.site_id} none="the whole fleet" />, text: (p) => p.site_id || 'the whole fleet' },
  { id: 'images', header: 'Allowed images', cell: (p) => <Images patterns={p.allowed_images} />, text: (p) => p.allowed_images.join(' ') },
  { id: 'version', header: 'Version', cell: (p) => p.version, sort: (p) => p.version, end: true },
  { id: 'changed', header: 'Changed', cell: (p) => <Time at={p.updated_at} />, sort: (p) => p.updated_at, text: () => '' },
];

const mostPatterns = 3;

function Images({ patterns }: { patterns: readonly string[] }) {
  if (patterns.length === 0) return <span className="muted">none: nothing may run</span>;
  return (
    <span className="tags" title={patterns.join('\n')}>
      {patterns.slice(0, mostPatterns).map((p) => (
        <span key={p} className="tag">
          {p}
        </span>
      ))}
      {patterns.length > mostPatterns && <span className="muted">and {patterns.length - mostPatterns} more</span>}
    </span>
  );
}

export function Policies() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const may = useMay();
  const caller = useCaller();
  const sites = useSiteOptions();
  const [creating, setCreating] = useState(false);
  const [editing, setEditing] = useState<PolicyPack>();
  const pages = usePages(['policies', 'list'], (cursor, signal) => page(api.GET('/policy-packs', { params: { query: { cursor } }, signal })));
  const refresh = () => queries.invalidateQueries({ queryKey: ['policies'] });
  const path = (pack: PolicyPack) => ({ params: { path: { id: pack.id } } });
  const where = (pack: PolicyPack) => (pack.site_id ? 'its site' : 'every site of the fleet');
  // Packs of the whole fleet apply to every org. Only callers without an org may change them.
  const mine = (pack: PolicyPack) => caller.org_id === '' || pack.org_id === caller.org_id;

  const toggle = (pack: PolicyPack) =>
    confirm({
      title: `${pack.enabled ? 'Disable' : 'Enable'} ${pack.name}?`,
      body: pack.enabled ? (
        <p>
          <b>{pack.name}</b> no longer counts for {where(pack)}. What only it allows may not run any more; where it was the only pack that applies, every image may.
        </p>
      ) : (
        <p>
          From now on {where(pack)} may run only what an enabled pack allows; <b>{pack.name}</b> allows {plural(pack.allowed_images.length, 'pattern')}. Running containers whose image none allows are denied by
          their agents.
        </p>
      ),
      action: pack.enabled ? 'Disable the pack' : 'Enable the pack',
      danger: pack.enabled,
      run: async () => {
        await api.PATCH('/policy-packs/{id}', { ...path(pack), body: { enabled: !pack.enabled } });
        await refresh();
      },
      done: `${pack.name} is ${pack.enabled ? 'disabled' : 'enabled'}.`,
    });
  const remove = (pack: PolicyPack) =>
    confirm({
      title: `Delete ${pack.name}?`,
      body: (
        <p>
          <b>{pack.name}</b> with its {plural(pack.allowed_images.length, 'pattern')} is removed. What only it allows may not run any more on {where(pack)}.
        </p>
      ),
      action: 'Delete the pack',
      danger: true,
      run: async () => {
        await api.DELETE('/policy-packs/{id}', path(pack));
        await refresh();
      },
      done: `${pack.name} is deleted.`,
    });
  const actions = (pack: PolicyPack): MenuAction[] =>
    mine(pack)
      ? [
          ...(may('PatchPolicyPack') ? [{ label: 'Edit', run: () => setEditing(pack) }, { label: pack.enabled ? 'Disable' : 'Enable', run: () => toggle(pack) }] : []),
          ...(may('DeletePolicyPack') ? [{ label: 'Delete', danger: true, run: () => remove(pack) }] : []),
        ]
      : [];

  const turn = (enabled: boolean) => (pack: PolicyPack) => api.PATCH('/policy-packs/{id}', { ...path(pack), body: { enabled } });
  const bulk: BulkAction<PolicyPack>[] = [
    ...(may('PatchPolicyPack')
      ? [
          { label: 'Enable', applies: (p: PolicyPack) => mine(p) && !p.enabled, body: 'From now on sites may run only what an enabled pack allows.', run: turn(true), after: refresh },
          { label: 'Disable', applies: (p: PolicyPack) => mine(p) && p.enabled, body: 'What only they allow may not run any more; where no pack is left, every image may.', danger: true, run: turn(false), after: refresh },
        ]
      : []),
    ...(may('DeletePolicyPack') ? [{ label: 'Delete', applies: mine, body: 'What only they allow may not run any more.', danger: true, run: (p: PolicyPack) => api.DELETE('/policy-packs/{id}', path(p)), after: refresh }] : []),
  ];

  const common: FieldSpec[] = [
    { name: 'allowed_images', label: 'Allowed images', hint: 'Patterns, one a line. A * matches any run of characters, slashes too.', placeholder: 'ghcr.io/example/*', keepEmpty: true },
    { name: 'enabled', label: 'Enabled', hint: 'Once a pack applies to a site, it runs only what one of its packs allows.' },
  ];
  const create = (
    <Allowed operation="CreatePolicyPack">
      <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
        Create a policy pack
      </button>
    </Allowed>
  );
  return (
    <Page title="Policy packs" lead="Allowlists of images. Where no enabled pack applies, every image may run; as soon as one does, only what a pack allows." actions={create}>
      <div className="stack">
        <Card flush>
          <Table
            label="Policy packs"
            noun="pack"
            columns={columns}
            pages={pages}
            rowKey={(p) => p.id}
            actions={actions}
            bulk={bulk}
            empty={{ icon: 'policy', title: 'No policy packs', text: 'Every site may run every image.', action: create }}
          />
        </Card>
        <Allowed operation="CheckImage">
          <TryImage />
        </Allowed>
      </div>
      {creating && (
        <FormDialog<PolicyPackInput>
          title="Create a policy pack"
          schema={schemas.CreatePolicyPack}
          fields={[
            { name: 'name', label: 'Name' },
            { name: 'site_id', label: 'Applies to', options: caller.org_id === '' ? [{ value: '', label: 'The whole fleet, every org' }, ...sites] : sites, hint: caller.org_id === '' ? undefined : 'Packs for the whole fleet are made by global admins.' },
            ...common,
          ]}
          values={{ enabled: true, site_id: caller.org_id === '' ? '' : sites[0]?.value }}
          action="Create the policy pack"
          onClose={() => setCreating(false)}
          onSubmit={async (input) => {
            const made = await body(api.POST('/policy-packs', { body: input }));
            await refresh();
            toast(`${made.name} is made.`);
            setCreating(false);
          }}
        />
      )}
      {editing && (
        <FormDialog<PolicyPackInput>
          title={`Edit ${editing.name}`}
          schema={schemas.PatchPolicyPack}
          fields={[{ name: 'name', label: 'Name' }, ...common]}
          values={editing}
          action="Save"
          onClose={() => setEditing(undefined)}
          onSubmit={async (input) => {
            const saved = await body(api.PATCH('/policy-packs/{id}', { ...path(editing), body: input }));
            await refresh();
            toast(`${saved.name} is saved as version ${saved.version}.`);
            setEditing(undefined);
          }}
        />
      )}
    </Page>
  );
}

function TryImage() {
  const sites = useSiteOptions();
  const [verdict, setVerdict] = useState<ImageVerdict>();
  return (
    <Card title="Try an image">
      <div className="stack">
        <Form<ImageCheck>
          schema={schemas.CheckImage}
          two
          fields={[
            { name: 'image', label: 'Image', placeholder: 'ghcr.io/example/gateway:1.4' },
            { name: 'site_id', label: 'On', options: [{ value: '', label: 'a site without packs of its own' }, ...sites] },
          ]}
          action="Try it"
          onSubmit={async (input) => {
            setVerdict(undefined);
            setVerdict(await body(api.POST('/policy-packs/check', { body: input })));
          }}
        />
        <div role="status">{verdict && <Verdict verdict={verdict} />}</div>
      </div>
    </Card>
  );
}

function Verdict({ verdict: v }: { verdict: ImageVerdict }) {
  return (
    <Notice tone={v.allowed ? 'ok' : 'bad'}>
      <p>
        <strong>
          <code>{v.image}</code> {v.allowed ? 'may run.' : 'may not run.'}
        </strong>{' '}
        {v.packs === 0 ? 'No enabled pack applies, so every image may.' : v.allowed ? '' : `${plural(v.packs, 'enabled pack')} ${v.packs === 1 ? 'applies' : 'apply'}, and none allows it.`}
      </p>
      {v.matches.map((m) => (
        <p key={`${m.pack_id} ${m.pattern}`}>
          {m.pack_name} allows it with <code>{m.pattern}</code>
        </p>
      ))}
    </Notice>
  );
}
