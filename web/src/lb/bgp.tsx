/** The sessions with BGP peers, and the addresses announced over them. */
import { Link } from 'wouter';
import { Card } from '../ui/facts';
import { Empty } from '../ui/notice';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Table, type Column } from '../ui/table';
import { Time } from '../ui/time';
import type { BGPSession, VIP } from './api';
import { vipLabel, vipPath } from './links';
import { useLive } from './live';
import { Announced, SessionState } from './states';

const columns: readonly Column<BGPSession>[] = [
  { id: 'peer', header: 'Peer', cell: (s) => <span className="mono">{s.peer}</span>, sort: (s) => s.peer },
  { id: 'asn', header: 'AS', cell: (s) => s.asn, sort: (s) => s.asn },
  { id: 'state', header: 'State', cell: (s) => <SessionState session={s} />, sort: (s) => s.state },
  { id: 'since', header: 'Since', cell: (s) => <Time at={s.since} />, sort: (s) => s.since, text: () => '' },
  { id: 'reason', header: 'Last loss', cell: (s) => (s.reason ? s.reason.replaceAll('-', ' ') : <span className="muted">{s.state === 'established' ? 'never lost' : 'not established yet'}</span>), sort: (s) => s.reason },
];

const announcements: readonly Column<VIP>[] = [
  { id: 'vip', header: 'VIP', cell: (v) => <span className="mono">{vipLabel(v)}</span>, sort: (v) => vipLabel(v), text: (v) => `${vipLabel(v)} ${v.name}` },
  { id: 'protocol', header: 'Protocol', cell: (v) => v.protocol, sort: (v) => v.protocol },
  { id: 'announced', header: 'Announcement', cell: (v) => <Announced vip={v} />, sort: (v) => (v.announced ? 'announced' : 'withdrawn') },
  { id: 'communities', header: 'Communities', cell: (v) => v.bgpCommunities.join(', ') || <span className="muted">none</span>, sort: (v) => v.bgpCommunities.join(' ') },
];

export function Sessions() {
  const { reading } = useLive();
  const sessions = reading && [...reading.node.bgp];
  if (sessions?.length === 0) {
    return (
      <Page title="BGP sessions">
        <Empty icon="peers" title="No BGP peers are configured">
          Routes to the VIPs of this node are made by other means. To announce them, give the configuration file a section bgp.
        </Empty>
      </Page>
    );
  }
  return (
    <Page title="BGP sessions" lead="An address is announced while a VIP of it has a healthy backend.">
      <div className="stack">
        <Card title="Peers" flush>
          <Table brief label="BGP sessions" noun="session" columns={columns} pages={wholeList(sessions)} rowKey={(s) => s.peer} empty={{ icon: 'peers', title: 'No peers' }} />
        </Card>
        <Card title="Announcements" actions={<Link href="/vips">All VIPs</Link>} flush>
          <Table label="Announcements" at="announcements." noun="VIP" columns={announcements} pages={wholeList(reading && [...reading.vips])} rowKey={(v) => v.name} href={(v) => vipPath(v.name)} empty={{ icon: 'balance', title: 'No VIPs are configured' }} />
        </Card>
      </div>
    </Page>
  );
}
