/** An image: what it is, why it failed, and what the tools that make it print. */
import { useQuery } from '@tanstack/react-query';
import { useLayoutEffect, useRef } from 'react';
import { Link, useLocation } from 'wouter';
import { body } from '../../ui/client';
import { Copyable } from '../../ui/copy';
import { Card, Facts } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { Menu } from '../../ui/menu';
import { Empty, Failure, Notice } from '../../ui/notice';
import { Page } from '../../ui/page';
import { ApiError } from '../../ui/problem';
import { bytes } from '../../ui/size';
import { DateTime } from '../../ui/time';
import { api, type Image } from '../api';
import { Busy } from '../jobs';
import { useLive } from '../live';
import { ImageBadge, inMaking, underWay } from '../states';
import { TagList } from '../vms/columns';
import { useImageActions } from './actions';
import { useImageLog } from './log';
import { originText } from './origin';

const above = [{ title: 'Images', href: '/images' }];
const kinds: Partial<Record<Image['state'], string>> = { building: 'image.build', downloading: 'image.download', importing: 'image.import', completed: 'image.resize' };

export function ImageDetail({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const { jobs } = useLive();
  const { actions, dialog } = useImageActions(() => navigate('/images'));
  const query = useQuery({ queryKey: ['images', 'one', id], queryFn: ({ signal }) => body(api.GET('/api/images/{id}', { params: { path: { id } }, signal })), refetchInterval: 2_000 });
  const image = query.data;
  const gone = query.error instanceof ApiError && query.error.status === 404;
  if (!image || gone) {
    return (
      <Page title="Image" above={above}>
        {gone ? (
          <Empty icon="search" title="There is no such image here" action={<Link href="/images" className="btn btn-primary">All images</Link>}>
            It may have been deleted, or belong to another tenant.
          </Empty>
        ) : query.error ? (
          <Failure error={query.error} retry={() => void query.refetch()} />
        ) : (
          <p className="muted">Loading…</p>
        )}
      </Page>
    );
  }
  const job = jobs?.find((j) => j.id === image.job_id);
  const busy = image.job_id !== undefined && (inMaking(image) || (job !== undefined && underWay(job)));
  return (
    <Page
      title={image.name}
      above={above}
      badge={<ImageBadge image={image} />}
      lead={originText(image)}
      actions={actions(image).length > 0 && <Menu label={`Actions for ${image.name}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(image)} />}
    >
      <div className="stack">
        {busy && image.job_id && <Busy key={image.job_id} id={image.job_id} kind={kinds[image.state] ?? 'image'} name={image.name} what="image" />}
        {image.error && (
          <Notice tone="bad">
            <strong>{image.state === 'completed' ? 'The last change failed.' : 'It was not made.'}</strong> {image.error}
          </Notice>
        )}
        <Card title="Image">
          <Facts
            facts={[
              image.state === 'completed' && ['For new VMs', <Copyable key="i" text={image.image} />],
              ['Kind', image.kind === 'iso' ? 'an installer' : 'a disk'],
              ['Whose', image.shared ? 'shared by all tenants' : (image.tenant ?? <span key="t" className="muted">nobody’s</span>)],
              image.state === 'completed' && image.kind === 'disk' && ['Size of the disk', bytes(image.virtual_size_bytes)],
              image.state === 'completed' && ['Takes', bytes(image.size_bytes)],
              image.state === 'completed' && ['Came in as', image.format],
              image.packages.length > 0 && ['Packages', <TagList key="p" tags={image.packages} />],
              // Only of builds is it known what is in them.
              image.agent && ['In it', `the guest agent${image.cloud_init ? ', cloud-init' : ''}`],
              image.agent && ['Console', image.autologin ? 'logs root in without a password' : 'asks for a login'],
              image.checksum !== '' && ['SHA-256', <Copyable key="c" text={image.checksum}><code className="clip">{image.checksum}</code></Copyable>],
              image.output_path ? ['At the hypervisor', <code key="o">{image.output_path}</code>] : null,
              ['Created', <DateTime key="m" at={image.created} />],
              image.started !== null && ['Began', <DateTime key="s" at={image.started} />],
              image.completed !== null && [image.state === 'completed' ? 'Completed' : 'Ended', <DateTime key="e" at={image.completed} />],
              ['ID', <Copyable key="d" text={image.id} />],
            ]}
          />
        </Card>
        <Log image={image} />
      </div>
      {dialog}
    </Page>
  );
}

/** The log, which stays at its end as it grows, unless somebody has scrolled up in it. */
function Log({ image }: { image: Image }) {
  const { log, error } = useImageLog(image.id);
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const text = log?.text ?? '';
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return (
    <Card title="Log">
      <div className="stack-tight">
        {error !== undefined && <Failure error={error} />}
        {log?.cut && <p className="muted small">The beginning, or something in between, is not kept any more.</p>}
        {text && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- it scrolls
          <pre ref={box} className="output" tabIndex={0} role="region" aria-label={`Log of ${image.name}`} onScroll={({ currentTarget: e }) => (atEnd.current = e.scrollHeight - e.scrollTop - e.clientHeight < 8)}>
            {text}
          </pre>
        )}
        {!error && !log && <p className="muted">Loading…</p>}
        {log && (
          <p className="muted small" role="status">
            {log.complete ? (text ? 'This is all.' : 'Nothing was printed.') : 'It goes on…'}
          </p>
        )}
      </div>
    </Card>
  );
}
