/** A VIP: its settings, its traffic, and its backends. */
import { useCallback } from 'react';
import { Link } from 'wouter';
import { Card, Facts } from '../../ui/facts';
import { Empty } from '../../ui/notice';
import { count } from '../../ui/number';
import { Page } from '../../ui/page';
import { wholeList } from '../../ui/paging';
import { Table } from '../../ui/table';
import type { VIP } from '../api';
import { useChanges } from '../change-dialog';
import { useBackendColumns } from '../columns';
import { vipLabel } from '../links';
import { useLive } from '../live';
import { TrafficPlots } from '../plots';
import { byteCount, type Past } from '../rates';
import { Announced, VIPState } from '../states';

const above = [{ title: 'VIPs', href: '/vips' }];

export function VIPDetail({ name }: { name: string }) {
  const { reading } = useLive();
  const columns = useBackendColumns();
  const { actions, dialog } = useChanges();
  const ofVIP = useCallback((sample: Past) => sample.vips.get(name), [name]);
  if (!reading) {
    return (
      <Page title="VIP" above={above}>
        <p className="muted">Loading…</p>
      </Page>
    );
  }
  const vip = reading.vips.find((v) => v.name === name);
  if (!vip) {
    return (
      <Page title={name} above={above}>
        <Empty icon="search" title="There is no such VIP here" action={<Link href="/vips" className="btn btn-primary">All VIPs</Link>}>
          It may have been taken out of the configuration.
        </Empty>
      </Page>
    );
  }
  return (
    <Page title={vipLabel(vip)} above={above} badge={<VIPState vip={vip} />} lead={`${vip.protocol}, ${vip.mode}, on ${vip.interface}`}>
      <div className="stack">
        <TrafficPlots whose="of the VIP" of={ofVIP} vip={name} />
        <Card title="Backends" flush>
          <Table
            label="Backends of the VIP"
            at="backends."
            noun="backend"
            columns={columns}
            pages={wholeList(vip.backends.map((b) => ({ ...b, vip: vip.name })))}
            rowKey={(b) => String(b.id)}
            actions={actions}
            empty={{ icon: 'server', title: 'This VIP has no backends', text: 'Packets of new flows are dropped.' }}
          />
        </Card>
        <Totals vip={vip} />
      </div>
      {dialog}
    </Page>
  );
}

function Totals({ vip }: { vip: VIP }) {
  return (
    <Card title="So far">
      <Facts
        facts={[
          ['Forwarded', `${count(vip.packets)} packets, ${byteCount(vip.bytes)}`],
          ['New flows', count(vip.flows)],
          ['No healthy backend', `${count(vip.droppedNoBackend)} packets dropped`],
          ['Over the rate limit', `${count(vip.droppedRateLimited)} packets dropped`],
          ['Not delivered otherwise', `${count(vip.unserved)} packets`],
          ['BGP', <Announced key="a" vip={vip} />],
          vip.bgpPeers.length > 0 && ['Peers', vip.bgpPeers.join(', ')],
          vip.bgpCommunities.length > 0 && ['Communities', vip.bgpCommunities.join(', ')],
        ]}
      />
    </Card>
  );
}
