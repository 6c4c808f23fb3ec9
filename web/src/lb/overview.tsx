/** An overview of the node: VIPs and their backends, current rates, and drops. */
import { Link } from 'wouter';
import { Card, Tile } from '../ui/facts';
import { Empty } from '../ui/notice';
import { count, plural, short } from '../ui/number';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Status } from '../ui/status';
import { Table } from '../ui/table';
import type { Backend, VIP } from './api';
import { useChanges } from './change-dialog';
import { useBackendColumns, type BackendOf } from './columns';
import { vipPath } from './links';
import { useLive } from './live';
import { TrafficPlots } from './plots';
import { bitRate, type Past, type Reading, type Traffic } from './rates';
import { nodeState, tally, worstFirst } from './states';
import { useVIPColumns } from './vips/columns';

/** The reasons and rates of drops. The rates are those of the last sample. */
export function Drops({ reading }: { reading: Reading }) {
  const { now } = useLive();
  const reasons = Object.entries(reading.node.drops).sort(([a, n], [b, m]) => m - n || a.localeCompare(b));
  const seen = reasons.filter(([, n]) => n > 0);
  if (seen.length === 0) {
    return (
      <Empty icon="check" title="Nothing was dropped">
        {reasons.length > 0 ? `${plural(reasons.length, 'reason')} are watched.` : 'Nothing is counted while the program is not attached.'}
      </Empty>
    );
  }
  return (
    <div className="table-scroll">
      <table className="table" aria-label="Dropped packets by reason">
        <thead>
          <tr>
            <th scope="col">Reason</th>
            <th scope="col" className="end">
              Packets
            </th>
            <th scope="col" className="end">
              Now, per second
            </th>
          </tr>
        </thead>
        <tbody>
          {seen.map(([reason, n]) => (
            <tr key={reason}>
              <td>{reason.replaceAll('_', ' ').replaceAll('-', ' ')}</td>
              <td className="end">{count(n)}</td>
              <td className="end">{now ? short(now.drops.get(reason) ?? 0) : '…'}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The number of rows shown of possibly thousands. */
const shown = 10;

const ofNode = (sample: Past) => sample;

export function Overview() {
  const { reading } = useLive();
  const columns = useVIPColumns();
  if (!reading) return <Page title="Overview">{<Tiles />}</Page>;
  const { vips, node } = reading;
  const state = nodeState(node, vips);
  const many = vips.length > shown;
  return (
    <Page
      title="Overview"
      badge={<Status tone={state.tone}>{state.text}</Status>}
      lead={node.attached ? `XDP ${node.xdpModeAttached} on ${node.interface}` : `Nothing is attached to ${node.interface}`}
    >
      <div className="stack">
        <Tiles reading={reading} />
        <Unhealthy vips={vips} />
        <TrafficPlots whose="of the node" of={ofNode} />
        <Card title={many ? 'VIPs, those in trouble first' : 'VIPs'} actions={<Link href="/vips">{many ? `All ${count(vips.length)} VIPs` : 'All VIPs'}</Link>} flush>
          <Table
            brief
            label="VIPs at a glance"
            noun="VIP"
            columns={columns}
            pages={wholeList(worstFirst(vips).slice(0, shown))}
            rowKey={(v) => v.name}
            href={(v) => vipPath(v.name)}
            empty={{ icon: 'balance', title: 'No VIPs are configured', text: 'They stand in the configuration file, which is loaded again when it changes.' }}
          />
        </Card>
        <Card title="Dropped packets" flush>
          <Drops reading={reading} />
        </Card>
      </div>
    </Page>
  );
}

/** The backends that get no new flows, and why. Renders nothing if there are none. */
function Unhealthy({ vips }: { vips: readonly VIP[] }) {
  const columns = useBackendColumns({ withVIP: true }).filter((c) => ['backend', 'vip', 'state', 'detail'].includes(c.id));
  const of = (state: Backend['state']): BackendOf[] => vips.flatMap((v) => v.backends.filter((b) => b.state === state).map((b) => ({ ...b, vip: v.name })));
  const rows = [...of('down'), ...of('draining')];
  const { actions, dialog } = useChanges();
  if (rows.length === 0) return null;
  return (
    <Card title="Backends that are not healthy" actions={<Link href="/backends">{rows.length > shown ? `${count(shown)} of ${count(rows.length)} shown; all backends` : 'All backends'}</Link>} flush>
      <Table brief label="Backends that are not healthy" noun="backend" columns={columns} pages={wholeList(rows.slice(0, shown))} rowKey={(b) => `${b.id} ${b.vip}`} actions={actions} empty={{ icon: 'check', title: 'None' }} />
      {dialog}
    </Card>
  );
}

function Tiles({ reading }: { reading?: Reading }) {
  const { now } = useLive();
  if (!reading) {
    return (
      <div className="tiles">
        {['VIPs', 'Backends healthy', 'Packets', 'New flows', 'Dropped', 'BGP sessions'].map((label) => (
          <Tile key={label} label={label} value={<span className="skeleton" />} />
        ))}
      </div>
    );
  }
  const { vips, node } = reading;
  const backends = tally(vips.flatMap((v) => v.backends));
  const unserved = vips.filter((v) => tally(v.backends).healthy === 0).length;
  const up = node.bgp.filter((s) => s.state === 'established').length;
  const dropped = Object.values(node.drops).reduce((a, b) => a + b, 0);
  // Longer texts do not fit side by side.
  const small = backends.total < 1000;
  const troubles = [backends.down && `${count(backends.down)} down`, backends.draining && `${count(backends.draining)} draining`].filter(Boolean).join(', ');
  const perSecond = (kind: keyof Traffic) => (now ? `${short(now[kind])}/s` : '…');
  return (
    <div className="tiles">
      <Tile href="/vips" label="VIPs" value={count(vips.length)} note={unserved ? `${count(unserved)} without a healthy backend` : 'all have a healthy backend'} bad={unserved > 0} />
      <Tile href={backends.down ? '/backends?filter=down' : '/backends'} label="Backends healthy" value={small ? `${backends.healthy} of ${backends.total}` : count(backends.healthy)} note={`${small ? '' : `of ${count(backends.total)}, `}${troubles || 'none down'}`} bad={backends.down > 0} />
      <Tile label="Packets" value={perSecond('packets')} note={now && bitRate(now.bytes)} />
      <Tile label="New flows" value={perSecond('flows')} note={`${short(node.flows.entries)} in the flow table`} />
      <Tile label="Dropped" value={perSecond('dropped')} note={dropped ? `${short(dropped)} so far` : 'none so far'} bad={!!now?.dropped} />
      <Tile href="/bgp" label="BGP sessions" value={node.bgp.length ? `${up} of ${node.bgp.length}` : 'none'} note={node.bgp.length === 0 ? 'not configured' : up < node.bgp.length ? `${node.bgp.length - up} not established` : 'all established'} bad={up < node.bgp.length} />
    </div>
  );
}
