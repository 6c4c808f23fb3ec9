/** The end of a VM's serial log, which is kept when the VM restarts or stops. */
import { useQuery } from '@tanstack/react-query';
import { useLayoutEffect, useRef } from 'react';
import { body } from '../../ui/client';
import { download } from '../../ui/download';
import { Card } from '../../ui/facts';
import { Empty, Failure, Notice } from '../../ui/notice';
import { reason } from '../../ui/problem';
import { bytes } from '../../ui/size';
import { toast } from '../../ui/toast';
import { api, type VM } from '../api';
import { logEnd } from './log-text';

/** How much of the log the page holds (bytes). */
const shown = 64 * 1024;

/** The most that the daemon keeps (bytes). */
const most = 2 * 1024 * 1024;

export function SerialLog({ vm }: { vm: VM }) {
  if (vm.backend === 'sandbox') return <Notice tone="info">A sandbox has no serial console, and so no log of it.</Notice>;
  return <Log vm={vm} />;
}

function Log({ vm }: { vm: VM }) {
  const { data, error, refetch } = useQuery({
    queryKey: ['vms', 'log', vm.id],
    queryFn: async ({ signal }) => logEnd(new Uint8Array(await body(api.GET('/v1/vms/{id}/log', { params: { path: { id: vm.id }, query: { tail: shown } }, parseAs: 'arrayBuffer', signal }))), shown),
    refetchInterval: 3_000,
  });
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const text = data?.text ?? '';
  // The log stays at its end as it grows, unless somebody has scrolled up in it.
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  const save = async () => {
    try {
      await download(`/v1/vms/${encodeURIComponent(vm.id)}/log?tail=${most}`, `${vm.name}.log`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  return (
    <Card
      title="Serial log"
      actions={
        <button type="button" className="btn" onClick={() => void save()}>
          Download
        </button>
      }
    >
      <div className="stack-tight">
        {error !== null && <Failure error={error} retry={() => void refetch()} />}
        {data?.cut && <p className="muted small">These are the last {bytes(shown)}. Download the log to read more: up to {bytes(most)} are kept.</p>}
        {text !== '' && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- it scrolls
          <pre ref={box} className="output tall" tabIndex={0} role="region" aria-label={`Serial log of ${vm.name}`} onScroll={({ currentTarget: e }) => (atEnd.current = e.scrollHeight - e.scrollTop - e.clientHeight < 8)}>
            {text}
          </pre>
        )}
        {data && text === '' && (
          <Empty icon="activity" title="The log is empty">
            What the VM prints to its serial console is kept here, also when it restarts or stops.
          </Empty>
        )}
        {!data && error === null && <p className="muted">Loading…</p>}
        {text !== '' && <p className="muted small">Without colours and movements of the cursor. What a VM prints while the daemon is down is not kept.</p>}
      </div>
    </Card>
  );
}
