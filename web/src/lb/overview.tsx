/** The node at a glance: VIPs and their backends, rates as they are now, what is dropped. */
import { useMemo } from 'react';
import { Link } from 'wouter';
import { Card, Tile } from '../ui/facts';
import { Empty } from '../ui/notice';
import { count, plural, short } from '../ui/number';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Plot } from '../ui/plot';
import { Table } from '../ui/table';
import { useLive } from './live';
import { vipPath } from './links';
import { undelivered, type Reading } from './rates';
import { tally, worstFirst } from './states';
import { useVIPColumns } from './vips/columns';

/** What is dropped and how often; the last sample is the present. */
export function Drops({ reading }: { reading: Reading }) {
  const { now } = useLive();
  const reasons = Object.entries(reading.node.drops).sort(([a, n], [b, m]) => m - n || a.localeCompare(b));
  const seen = reasons.filter(([, n]) => n > 0);
  if (seen.length === 0) {
    return (
      <Empty icon="check" title="Nothing was dropped">
        {plural(reasons.length, 'reason')} are watched.
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

const shownVIPs = 10;

export function Overview() {
  const { reading } = useLive();
  const columns = useVIPColumns();
  if (!reading) return <Page title="Overview">{<Tiles />}</Page>;
  const { vips, node } = reading;
  const shown = worstFirst(vips).slice(0, shownVIPs);
  return (
    <Page title="Overview" lead={node.attached ? `XDP ${node.xdpModeAttached} on ${node.interface}` : `Nothing is attached to ${node.interface}`}>
      <div className="stack">
        <Tiles reading={reading} />
        <LivePlots />
        <Card title={vips.length > shownVIPs ? 'VIPs, those in trouble first' : 'VIPs'} actions={<Link href="/vips">{vips.length > shownVIPs ? `All ${count(vips.length)} VIPs` : 'All VIPs'}</Link>} flush>
          <Table label="VIPs at a glance" noun="VIP" columns={columns} pages={wholeList(shown)} rowKey={(v) => v.name} href={(v) => vipPath(v.name)} empty={{ icon: 'balance', title: 'No VIPs are configured', text: 'They stand in the configuration file, which is loaded again when it changes.' }} />
        </Card>
        <Card title="Dropped packets" flush>
          <Drops reading={reading} />
        </Card>
      </div>
    </Page>
  );
}

function Tiles({ reading }: { reading?: Reading }) {
  const { now } = useLive();
  if (!reading) {
    return (
      <div className="tiles">
        {['VIPs', 'Backends healthy', 'Packets', 'New flows', 'Flow table', 'BGP sessions'].map((label) => (
          <Tile key={label} label={label} value={<span className="skeleton" />} />
        ))}
      </div>
    );
  }
  const { vips, node } = reading;
  const backends = tally(vips.flatMap((v) => v.backends));
  const unserved = vips.filter((v) => tally(v.backends).healthy === 0).length;
  const up = node.bgp.filter((s) => s.state === 'established').length;
  const lost = vips.reduce((n, v) => n + undelivered(v), 0);
  const troubles = [backends.down && `${count(backends.down)} down`, backends.draining && `${count(backends.draining)} draining`].filter(Boolean).join(', ');
  return (
    <div className="tiles">
      <Tile href="/vips" label="VIPs" value={count(vips.length)} note={unserved ? `${count(unserved)} without a healthy backend` : 'all have a healthy backend'} bad={unserved > 0} />
      <Tile href="/backends" label="Backends healthy" value={`${count(backends.healthy)} of ${count(backends.total)}`} note={troubles || 'none down'} bad={backends.down > 0} />
      <Tile label="Packets" value={now ? `${short(now.packets)}/s` : '…'} note={now?.dropped ? `${short(now.dropped)}/s dropped` : 'none dropped now'} bad={!!now?.dropped} />
      <Tile label="New flows" value={now ? `${short(now.flows)}/s` : '…'} note={lost ? `${short(lost)} packets not delivered so far` : 'all delivered so far'} />
      <Tile href="/node" label="Flow table" value={short(node.flows.entries)} note={node.flows.evictions ? `${short(node.flows.evictions)} evicted` : 'none evicted'} bad={node.flows.evictions > 0} />
      <Tile href="/bgp" label="BGP sessions" value={node.bgp.length ? `${up} of ${node.bgp.length}` : 'none'} note={node.bgp.length === 0 ? 'not configured' : up < node.bgp.length ? `${node.bgp.length - up} not established` : 'all established'} bad={up < node.bgp.length} />
    </div>
  );
}

function LivePlots() {
  const { samples } = useLive();
  const data = useMemo(
    () => ({
      times: samples.map((s) => s.at),
      packets: [
        { label: 'Forwarded', values: samples.map((s) => s.packets) },
        { label: 'Dropped', values: samples.map((s) => s.dropped) },
      ],
      flows: [{ label: 'New flows', values: samples.map((s) => s.flows) }],
    }),
    [samples],
  );
  return (
    <div className="grid">
      <Card title="Packets per second">{samples.length > 1 ? <Plot label="Packets since this page was opened" times={data.times} series={data.packets} unit="/s" /> : <Measuring />}</Card>
      <Card title="New flows per second">{samples.length > 1 ? <Plot label="New flows since this page was opened" times={data.times} series={data.flows} unit="/s" /> : <Measuring />}</Card>
    </div>
  );
}

export const Measuring = () => <p className="muted">Measuring. The first rates are there in a few seconds.</p>;
