/** The forms about images: build, download, import, make larger. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { Failure, Notice } from '../../ui/notice';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { toast } from '../../ui/toast';
import { api, pageLimit, schemas, useSeesAll, type Image, type ImageBuildSpec, type ImageDownloadSpec, type ImageImportSpec, type ImageResizeSpec } from '../api';
import { imagePath } from '../links';
import { distributionOptions, downloadKey } from './origin';

export type Making = 'build' | 'download' | 'import';

interface Closing {
  onClose: () => void;
}

/** Refreshes what a change of images touches. */
export function useRefresh(): () => Promise<unknown> {
  const queries = useQueryClient();
  return () => Promise.all(['images', 'live', 'jobs'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
}

/** Whose the image is, for those who may choose. */
function useTenantField(): FieldSpec[] {
  const seesAll = useSeesAll();
  const tenants = useQuery({ queryKey: ['tenants', 'all'], queryFn: ({ signal }) => body(api.GET('/api/tenants', { params: { query: { limit: pageLimit } }, signal })), enabled: seesAll }).data;
  return seesAll ? [{ name: 'tenant', label: 'Whose', hint: 'Who sees it, and makes VMs of it', options: [{ value: '', label: 'All tenants share it' }, ...(tenants ?? []).map((t) => ({ value: t.name, label: t.name }))] }] : [];
}

/** Closes the form, and opens the page of the new image, which shows its progress. */
function useBegun(onClose: () => void): (image: Image) => Promise<void> {
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  return async (image) => {
    onClose();
    navigate(imagePath(image));
    await refresh();
  };
}

const distributions = (schemas.BuildImage.properties?.['distribution'] as Schema).enum as string[];

function Build({ onClose }: Closing) {
  const begun = useBegun(onClose);
  return (
    <FormDialog<ImageBuildSpec>
      title="Build an image"
      schema={schemas.BuildImage}
      fields={[
        { name: 'name', label: 'Name' },
        { name: 'distribution', label: 'Distribution', options: distributionOptions(distributions) },
        { name: 'version', label: 'Release', placeholder: '12', hint: 'The newest that the service knows, when empty' },
        { name: 'packages', label: 'Packages', placeholder: 'nginx', hint: 'One a line, beside those that a machine needs to boot' },
        { name: 'cloud_init', label: 'Install cloud-init', hint: 'It takes users, keys and the host name from the VM’s settings' },
        { name: 'autologin', label: 'Log root in on the console without a password', hint: '' },
        ...useTenantField(),
      ]}
      values={{ distribution: 'debian' }}
      warning={(input) => (input.autologin ? 'Everyone who may open the console of a VM of it is root there.' : undefined)}
      action="Build the image"
      onClose={onClose}
      onSubmit={async (input) => begun(await body(api.POST('/api/images/build', { body: input })))}
    >
      <p className="muted">It boots to a login on the serial console, takes its address by DHCP, and has the guest agent. It has no passwords.</p>
    </FormDialog>
  );
}

/** What the form asks for: a distribution, and for each of them one of its downloads. */
type DownloadChoice = Pick<ImageDownloadSpec, 'name' | 'tenant'> & { distribution: string } & Partial<Record<`of_${string}`, string>>;

const parts = schemas.DownloadImage.properties;
const downloadSchema: Schema = {
  ...schemas.DownloadImage,
  required: [],
  properties: { name: parts?.['name'] as Schema, tenant: parts?.['tenant'] as Schema, distribution: { type: 'string' } },
};

function Download({ onClose }: Closing) {
  const begun = useBegun(onClose);
  const tenant = useTenantField();
  const { data, error } = useQuery({ queryKey: ['images', 'downloads'], queryFn: ({ signal }) => body(api.GET('/api/images/downloads', { signal })), staleTime: Infinity });
  const of = (id: string) => data?.filter((d) => d.distribution === id) ?? [];
  const chosen = (input: Partial<DownloadChoice>) => {
    const { distribution = '' } = input;
    return of(distribution).find((d) => downloadKey(d) === input[`of_${distribution}`]);
  };
  const ids = [...new Set(data?.map((d) => d.distribution))];
  const first = (id: string) => of(id).map(downloadKey)[0];
  if (!data && !error) return null;
  return (
    <FormDialog<DownloadChoice>
      // What can be downloaded decides over the fields.
      key={data ? 'known' : 'asking'}
      title="Download an image"
      schema={downloadSchema}
      fields={[
        { name: 'distribution', label: 'Distribution', options: distributionOptions(ids) },
        ...ids.map((id): FieldSpec => ({
          name: `of_${id}`,
          label: 'Release and format',
          options: of(id).map((d) => ({ value: downloadKey(d), label: `${d.title} (${d.format})` })),
          when: (draft) => draft['distribution'] === id,
        })),
        { name: 'name', label: 'Name', hint: 'The distribution and its release, when empty. Unique within its tenant' },
        ...tenant,
      ]}
      values={{ distribution: ids.includes('debian') ? 'debian' : ids[0], ...Object.fromEntries(ids.map((id) => [`of_${id}`, first(id)])) }}
      preview={(input) => {
        if (!data) return <Failure error={error} />;
        const d = chosen(input);
        return (
          d && (
            <Notice tone="info">
              {d.format === 'iso' ? 'An installer: a VM of it boots from it. ' : 'A disk with an installed system. '}It comes from <code>{d.url}</code>, and is used only if its checksum is right.
            </Notice>
          )
        );
      }}
      action="Download the image"
      onClose={onClose}
      onSubmit={async (input) => {
        const d = chosen(input);
        if (!d) throw new Error('What can be downloaded is not known yet.');
        const { name, tenant: whose } = input;
        const spec: ImageDownloadSpec = { distribution: d.distribution, version: d.version, format: d.format, ...(name && { name }), ...(whose && { tenant: whose }) };
        await begun(await body(api.POST('/api/images/download', { body: spec })));
      }}
    />
  );
}

function Import({ onClose }: Closing) {
  const begun = useBegun(onClose);
  return (
    <FormDialog<ImageImportSpec>
      title="Import an image"
      schema={schemas.ImportImage}
      fields={[{ name: 'name', label: 'Name' }, { name: 'path', label: 'Path', placeholder: '/srv/images/router.qcow2' }, { name: 'format', label: 'Format' }, ...useTenantField()]}
      action="Import the image"
      onClose={onClose}
      onSubmit={async (input) => begun(await body(api.POST('/api/images/import', { body: input })))}
    />
  );
}

const makings = { build: Build, download: Download, import: Import } as const;

export function MakeImage({ what, onClose }: Closing & { what: Making }) {
  const Form = makings[what];
  return <Form onClose={onClose} />;
}

const gib = 2 ** 30;

export function ResizeImage({ image, onClose }: Closing & { image: Image }) {
  const refresh = useRefresh();
  return (
    <FormDialog<ImageResizeSpec>
      title={`Make the disk of ${image.name} larger`}
      schema={schemas.ResizeImage}
      fields={[{ name: 'size_gb', label: 'Size in GiB', hint: `Not less than it has: ${bytes(image.virtual_size_bytes)}` }]}
      values={{ size_gb: Math.max(1, Math.ceil(image.virtual_size_bytes / gib)) }}
      action="Resize the image"
      onClose={onClose}
      onSubmit={async (input) => {
        await api.POST('/api/images/{id}/resize', { params: { path: { id: image.id } }, body: input });
        toast(`The disk of ${image.name} has ${input.size_gb} GiB now.`);
        onClose();
        await refresh();
      }}
    >
      <p className="muted">VMs that were made of it keep the disks that they have.</p>
    </FormDialog>
  );
}
