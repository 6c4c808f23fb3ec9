/** The OSDs of a cluster by host: what each holds, and taking them out and in. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { body, page } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { Card } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Icon } from '../../ui/icon';
import { Menu, type MenuAction } from '../../ui/menu';
import { Empty, Failure } from '../../ui/notice';
import { count, percent, plural } from '../../ui/number';
import { Bar } from '../../ui/progress';
import type { Schema } from '../../ui/schema';
import { bytes } from '../../ui/size';
import { Status } from '../../ui/status';
import { api, pageLimit, useMay, type Cluster, type OSD } from '../api';
import { jobPath } from '../links';
import { useRefresh } from '../live';
import { hostsOf } from './hosts';

/** How many pages of OSDs are loaded. */
const mostPages = 10;

async function allOSDs(cluster: string, signal: AbortSignal): Promise<OSD[]> {
  const all: OSD[] = [];
  let cursor: string | undefined;
  for (let i = 0; i < mostPages; i++) {
    const { items, next } = await page(api.GET('/osds', { params: { query: { cluster, limit: pageLimit, cursor } }, signal }));
    all.push(...items);
    if (next === undefined) break;
    cursor = next;
  }
  return all;
}

const name = (o: OSD) => `osd.${o.id}`;

export function OSDs({ cluster }: { cluster: Cluster }) {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const [weighing, setWeighing] = useState<OSD>();
  const osds = useQuery({ queryKey: ['osds', cluster.id], queryFn: ({ signal }) => allOSDs(cluster.id, signal), refetchInterval: 10_000 });
  const at = (o: OSD) => ({ params: { path: { osd_id: o.id }, query: { cluster: o.cluster_id } } });
  const follow = async (begun: Promise<{ job_id: string }>) => {
    const { job_id } = await begun;
    await refresh();
    navigate(jobPath({ id: job_id }));
  };
  const holding = osds.data?.filter((o) => o.in_cluster && o.up).length ?? 0;
  const out = (o: OSD) =>
    confirm({
      title: `Take ${name(o)} out?`,
      body: (
        <>
          <p>
            The {bytes(o.used_bytes)} that <b>{name(o)}</b> on {o.host || 'an unknown host'} holds are copied to the others. {plural(holding - Number(o.up), 'OSD that runs holds', 'OSDs that run hold')} data then.
          </p>
          <p>That takes long, and slows the cluster down meanwhile. Check first that the others have room for it.</p>
        </>
      ),
      typed: name(o),
      action: 'Take it out',
      danger: true,
      run: () => follow(body(api.POST('/osds/{osd_id}/out', at(o)))),
      done: `${name(o)} is being taken out.`,
    });
  const takeIn = (o: OSD) =>
    confirm({
      title: `Take ${name(o)} in?`,
      body: (
        <p>
          <b>{name(o)}</b> on {o.host || 'an unknown host'} holds its share of the data again, which is copied to it. That slows the cluster down meanwhile.
        </p>
      ),
      action: 'Take it in',
      run: () => follow(body(api.POST('/osds/{osd_id}/in', at(o)))),
      done: `${name(o)} is being taken in.`,
    });
  const actions = (o: OSD): MenuAction[] => [
    ...(o.in_cluster && allowed('ReweightOSD') ? [{ label: 'Reweight…', run: () => setWeighing(o) }] : []),
    ...(!o.in_cluster && allowed('MarkOSDIn') ? [{ label: 'Take in…', run: () => takeIn(o) }] : []),
    ...(o.in_cluster && allowed('MarkOSDOut') ? [{ label: 'Take out…', danger: true, run: () => out(o) }] : []),
  ];
  return (
    <Card title="OSDs by host">
      {osds.error && !osds.data ? (
        <Failure error={osds.error} retry={() => void osds.refetch()} />
      ) : !osds.data ? (
        <span className="skeleton" />
      ) : osds.data.length === 0 ? (
        <Empty icon="server" title="There are no OSDs">
          Only Ceph clusters have them: the daemons that store data.
        </Empty>
      ) : (
        <div className="tree" role="group" aria-label={`OSDs of ${cluster.name}`}>
          <ul>
            {hostsOf(osds.data).map((host) => (
              <li key={host.name}>
                <div className="tree-node">
                  <span className="tree-name">
                    <b>{host.name || 'Host not known'}</b>
                    <span className="muted small">
                      {plural(host.osds.length, 'OSD')}, {count(host.up)} up, {count(host.in)} in, {bytes(host.used)} of {bytes(host.capacity)}
                    </span>
                  </span>
                </div>
                <ul aria-label={`OSDs on ${host.name || 'hosts that are not known'}`}>
                  {host.osds.map((o) => (
                    <li key={o.id}>
                      <div className="tree-node">
                        <OSDLine osd={o} />
                        <Menu label={`Actions for ${name(o)}`} button={<Icon name="more" />} actions={actions(o)} />
                      </div>
                    </li>
                  ))}
                </ul>
              </li>
            ))}
          </ul>
        </div>
      )}
      {weighing && <Reweight osd={weighing} onClose={() => setWeighing(undefined)} begin={(weight) => follow(body(api.POST('/osds/{osd_id}/reweight', { params: { path: { osd_id: weighing.id }, query: { cluster: weighing.cluster_id, weight } } })))} />}
    </Card>
  );
}

function OSDLine({ osd: o }: { osd: OSD }) {
  return (
    <span className="tree-name">
      <span>{name(o)}</span>
      <Status tone={o.up ? 'ok' : 'bad'}>{o.up ? 'up' : 'down'}</Status>
      <Status tone={o.in_cluster ? 'ok' : 'warn'}>{o.in_cluster ? 'in' : 'out'}</Status>
      <span className="meter">
        <Bar parts={[{ label: 'percent used', value: o.capacity_bytes > 0 ? Math.round((100 * o.used_bytes) / o.capacity_bytes) : 0, tone: o.used_bytes > 0.85 * o.capacity_bytes ? 'bad' : 'info' }]} total={100} />
        <span className="muted small">
          {bytes(o.used_bytes)} of {bytes(o.capacity_bytes)}
        </span>
      </span>
      <span className="muted small">
        {o.device_class || 'class not known'}, weight {o.weight === undefined ? 'not known' : percent(o.weight)}
      </span>
    </span>
  );
}

const schema: Schema = { type: 'object', required: ['weight'], properties: { weight: { type: 'number', minimum: 0, maximum: 1 } } };

function Reweight({ osd: o, begin, onClose }: { osd: OSD; begin: (weight: number) => Promise<unknown>; onClose: () => void }) {
  return (
    <FormDialog<{ weight: number }>
      title={`Reweight ${name(o)}`}
      schema={schema}
      fields={[{ name: 'weight', label: 'Weight', hint: 'From 0 to 1: 1 is its whole share of the data, 0 nothing' }]}
      values={{ weight: o.weight }}
      action="Reweight the OSD"
      onClose={onClose}
      onSubmit={async ({ weight }) => {
        await begin(weight);
        onClose();
      }}
    >
      <p>Data is copied until {name(o)} holds that part of its share. That slows the cluster down meanwhile.</p>
    </FormDialog>
  );
}
