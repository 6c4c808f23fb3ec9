/** Making a VM: what it shall be, what is left of the quota, and then each step until it runs. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { body } from '../../ui/client';
import type { Draft, FieldSpec } from '../../ui/draft';
import { Card } from '../../ui/facts';
import { Form } from '../../ui/form';
import { Notice } from '../../ui/notice';
import { percent } from '../../ui/number';
import { Page } from '../../ui/page';
import { Stages } from '../../ui/progress';
import type { Schema } from '../../ui/schema';
import { mib } from '../../ui/size';
import type { Tone } from '../../ui/status';
import { useCaller } from '../../ui/access';
import { Allowed, api, pageLimit, schemas, useMay, useSeesAll, type Forward, type Tenant, type VM, type VMPolicySpec, type VMSpec } from '../api';
import { useReadyImages } from '../images/ready';
import { at, vmPath } from '../links';
import { forwardsOf, forwardsText } from '../network/forwards';
import { portsOf } from '../network/ports';
import { make, stepsOf, type Plan, type Step, type StepID } from './making';
import { lacking, sizes, sizeOf } from './sizes';

/** What the form asks for beside the VM itself. */
interface Wizard extends VMSpec {
  size?: string;
  start?: boolean;
  guard?: 'none' | 'deny';
  ports?: string;
}

const schema: Schema = {
  ...schemas.CreateVM,
  properties: {
    ...schemas.CreateVM.properties,
    size: { type: 'string', enum: Object.keys(sizes), default: 'small' },
    start: { type: 'boolean', default: true },
    guard: { type: 'string', enum: ['none', 'deny'], default: 'none' },
    ports: { type: 'string', maxLength: 256 },
  },
};

const custom = (d: Draft) => d['size'] === 'custom';
const bridged = (d: Draft) => d['network.mode'] === 'bridge';
const behindHost = (d: Draft) => d['network.mode'] === 'user';

const fields = (images: readonly string[], tenants: readonly string[] | undefined, mayGuard: boolean): FieldSpec[] => [
  { name: 'name', label: 'Name', hint: 'Unique among the VMs of its tenant' },
  { name: 'image', label: 'Image', suggestions: images, ...(images[0] && { placeholder: images[0] }), hint: 'Its name. Images that are ready and those that VMs have now are suggested.' },
  { name: 'size', label: 'Size', options: Object.entries(sizes).map(([value, s]) => ({ value, label: s.label })) },
  { name: 'disk', label: 'Disk in GiB', hint: 'At least what the image has. Takes room only as it is filled. Empty: what the image has, which may be none' },
  { name: 'cpus', label: 'Processors', when: custom },
  { name: 'memory', label: 'Memory in MiB', hint: '', when: custom },
  {
    name: 'network.mode',
    label: 'Network',
    hint: 'Others reach it on a bridge, where network policies are enforced, or through ports of the host',
    options: [
      { value: 'user', label: 'Its own: it reaches out through the host' },
      { value: 'bridge', label: 'A bridge of the host' },
      { value: 'none', label: 'None' },
    ],
  },
  {
    name: 'network.forwards',
    label: 'Ports of the host',
    kind: 'text',
    placeholder: '30080:80, 30053:53/udp',
    hint: 'Each leads to a port of the guest. They are reached on the host itself, or at an address of it: 0.0.0.0:30080:80',
    when: behindHost,
    read: (text) => forwardsOf(String(text)),
    show: (forwards) => forwardsText(forwards as Forward[]),
  },
  ...(tenants ? [{ name: 'tenant', label: 'Tenant', hint: 'Whose it is, for ever', options: [{ value: '', label: 'none' }, ...tenants.map((t) => ({ value: t, label: t }))] }] : []),
  ...(mayGuard
    ? ([
        {
          name: 'guard',
          label: 'Network policy',
          when: bridged,
          options: [
            { value: 'none', label: 'None: everything is allowed' },
            { value: 'deny', label: 'Deny what comes in, but for some ports' },
          ],
        },
        {
          name: 'ports',
          label: 'TCP ports that are allowed in',
          placeholder: '22, 80, 8000-8100',
          hint: 'The VM reaches out as it likes, and gets the answers. Empty: nobody reaches it',
          when: (d) => bridged(d) && d['guard'] === 'deny',
          read: (text) => {
            portsOf(String(text));
            return text;
          },
        },
      ] satisfies FieldSpec[])
    : []),
  { name: 'start', label: 'Start it', hint: 'When it has been made' },
  { name: 'autostart', label: 'Start it with its host', hint: '' },
  { name: 'description', label: 'Description', advanced: true },
  { name: 'network.bridge', label: 'Bridge', hint: 'Its name on the host; that of the hypervisor when empty', advanced: true, when: bridged },
  { name: 'backend', label: 'Backend', advanced: true },
  { name: 'protected', label: 'Protect it from deleting', hint: '', advanced: true },
  { name: 'tags', label: 'Tags', hint: 'Backup policies select VMs by them', advanced: true },
  { name: 'labels', label: 'Labels', hint: 'Network policies select VMs by them', advanced: true },
  { name: 'cloud_init.hostname', label: 'Host name in the guest', advanced: true },
  { name: 'cloud_init.ssh_authorized_keys', label: 'SSH keys', advanced: true, wide: true },
  { name: 'cloud_init.user_data', label: 'cloud-init user data', kind: 'multiline', advanced: true, wide: true, placeholder: '#cloud-config' },
];

/** The VM itself, and what happens once it is recorded. */
function split(given: Wizard): { spec: VMSpec; plan: Plan } {
  const { size: _size, start, guard, ports, ...spec } = given;
  const policy: VMPolicySpec | undefined = guard === 'deny' && spec.network?.mode === 'bridge' ? denyIn(ports ?? '') : undefined;
  return { spec, plan: { policy, start: start ?? false } };
}

/** Denies what comes in but for some TCP ports. */
export function denyIn(ports: string): VMPolicySpec {
  const open = portsOf(ports);
  return { ingress: { default: 'deny', rules: open.length ? [{ action: 'allow', protocol: 'tcp', ports: open, entity: 'all' }] : [] }, egress: { default: 'allow' } };
}

export function CreateVM() {
  const seesAll = useSeesAll();
  const own = useCaller().org_id;
  const mayGuard = useMay()('SetVMPolicy');
  const queries = useQueryClient();
  const [recorded, setRecorded] = useState<{ vm: VM; plan: Plan }>();
  const known = useQuery({ queryKey: ['vms', 'images'], queryFn: ({ signal }) => body(api.GET('/api/vms', { params: { query: { limit: 200 } }, signal })), staleTime: 60_000 });
  const made = useReadyImages();
  const ready = made?.filter((i) => i.kind === 'disk').map((i) => i.image) ?? [];
  const images = [...new Set([...ready, ...(known.data?.items.map((v) => v.image) ?? [])].filter((i) => !i.includes('/')))].sort();
  const [image] = useParam('image', '');
  const tenants = useQuery({ queryKey: ['tenants', 'all'], queryFn: ({ signal }) => body(api.GET('/api/tenants', { params: { query: { limit: pageLimit } }, signal })) });
  const above = [{ title: 'VMs', href: '/vms' }];
  if (recorded) {
    return (
      <Page title={`Making ${recorded.vm.name}`} above={above} lead="The VM is recorded. What follows goes on while this page is open; what a job does goes on without it.">
        <Making {...recorded} />
      </Page>
    );
  }
  return (
    <Page title="Create a VM" above={above} lead="It is recorded at once. Then the hypervisor makes its disk, and starts it.">
      <Card>
        {/* What tenants there are decides over the fields. */}
        {tenants.isPending ? (
          <p className="muted">Loading…</p>
        ) : (
          <Form<Wizard>
            two
            schema={schema}
            fields={fields(images, seesAll ? tenants.data?.map((t) => t.name) : undefined, mayGuard)}
            values={{ disk: 10, image }}
            prepare={(w) => ({ ...w, ...sizeOf(w) })}
            preview={(w) => <Left tenants={tenants.data ?? []} name={seesAll ? (w.tenant ?? '') : own} wanted={{ ...w, ...sizeOf(w) }} />}
            action="Create the VM"
            onSubmit={async (w) => {
              const { spec, plan } = split(w);
              const vm = await body(api.POST('/api/vms', { body: spec }));
              void queries.invalidateQueries({ queryKey: ['vms'] });
              void queries.invalidateQueries({ queryKey: ['tenants'] });
              setRecorded({ vm, plan });
            }}
          >
            {made && known.data && images.length === 0 && <NoImages />}
          </Form>
        )}
      </Card>
    </Page>
  );
}

/** Where images come from, if there are none. The hypervisor's catalog may have some that are not listed here. */
function NoImages() {
  return (
    <Notice tone="info">
      <strong>No image is ready here.</strong> A VM is made of one.{' '}
      <Allowed operation="BuildImage">
        <Link href="/images">Build or download one</Link>, or type the name of one in the hypervisor’s catalog.
      </Allowed>
    </Notice>
  );
}

/** What the tenant's quota has left, and whether the VM fits into it. */
function Left({ tenants, name, wanted }: { tenants: readonly Tenant[]; name: string; wanted: Partial<VMSpec> }) {
  const tenant = tenants.find((t) => t.name === name);
  if (!tenant) return null;
  const rows = lacking(tenant, { vms: 1, cpus: wanted.cpus ?? 1, memory: wanted.memory ?? 512, disk: wanted.disk ?? 0 });
  if (rows.length === 0) return <p className="muted small">The tenant {name} has no limits.</p>;
  const short = rows.filter((r) => r.wanted > r.left);
  const text = (r: (typeof rows)[number], n: number) => (r.of === 'memory' ? mib(n) : r.of === 'disk' ? `${n} GiB` : `${n}`);
  return (
    <Notice tone={short.length ? 'warn' : 'info'}>
      The quota of <b>{name}</b> has left: {rows.map((r) => `${text(r, Math.max(0, r.left))} of ${text(r, r.limit)} ${r.label}`).join(', ')}.{' '}
      {short.length > 0 && <strong>This VM needs {short.map((r) => `${text(r, r.wanted)} ${r.label}`).join(' and ')}.</strong>}
    </Notice>
  );
}

const titles: Record<StepID, string> = { make: 'Make the VM', policy: 'Set its network policy', start: 'Start it' };
const words: Record<Step['state'], [tone: Tone, text: string]> = { waiting: ['idle', 'waits'], running: ['info', 'under way'], done: ['ok', 'done'], failed: ['bad', 'failed'], skipped: ['idle', 'not asked for'] };
const plain: Record<StepID, string> = { make: 'The hypervisor makes its disk of the image.', policy: 'Before the VM starts, so that nothing passes in between.', start: 'Its guest begins to boot.' };

function Making({ vm, plan }: { vm: VM; plan: Plan }) {
  const [steps, setSteps] = useState<readonly Step[]>(() => stepsOf(plan));
  useEffect(() => {
    const end = new AbortController();
    const { signal } = end;
    void make(
      {
        vm: () => body(api.GET('/api/vms/{name}', { ...at(vm), signal })),
        job: (job) => body(api.GET('/api/jobs/{job}', { params: { path: { job }, query: { wait: 1 } }, signal })),
        setPolicy: (spec) => body(api.POST('/api/vms/{name}/dataplane/policy', { ...at(vm), body: spec, signal })),
        start: async () => (await body(api.POST('/api/vms/{name}/start', { ...at(vm), signal }))).job_id,
      },
      plan,
      setSteps,
      signal,
    );
    return () => end.abort();
  }, [vm, plan]);
  const failed = steps.some((s) => s.state === 'failed');
  const over = failed || steps.every((s) => s.state === 'done' || s.state === 'skipped');
  return (
    <div className="stack">
      <Card>
        <Stages
          label={`Steps of making ${vm.name}`}
          stages={[
            { title: 'Record it', state: 'done', tone: 'ok', detail: `${vm.name} belongs to ${vm.tenant ? `the tenant ${vm.tenant}` : 'no tenant'}.`, current: false },
            ...steps.map((s) => {
              const [tone, text] = words[s.state];
              return { title: titles[s.id], state: s.progress !== undefined && s.state === 'running' ? percent(s.progress) : text, tone, detail: s.detail ?? plain[s.id], current: s.state === 'running' };
            }),
          ]}
        />
      </Card>
      <div role="status">
        {failed && <Notice tone="bad">The VM exists, but not everything that was asked for was done. Its page says what it is now, and what can be tried again.</Notice>}
        {over && !failed && <Notice tone="ok">{vm.name} is ready.</Notice>}
      </div>
      <div className="row">
        <Link href={vmPath(vm)} className={`btn ${over ? 'btn-primary' : ''}`}>
          Open {vm.name}
        </Link>
      </div>
    </div>
  );
}
