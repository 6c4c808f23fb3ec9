/** The columns of lists of VIPs. */
import { useMemo } from 'react';
import { short } from '../../ui/number';
import type { Column } from '../../ui/table';
import type { VIP } from '../api';
import { vipLabel } from '../links';
import { useLive } from '../live';
import { bitRate, type Traffic } from '../rates';
import { Announced, tally, tallyText, VIPState } from '../states';

export function useVIPColumns(): readonly Column<VIP>[] {
  const { now } = useLive();
  return useMemo(() => {
    const rate = (v: VIP, kind: keyof Traffic) => now?.vips.get(v.name)?.[kind];
    const perSecond = (id: keyof Traffic, header: string, text = short): Column<VIP> => ({
      id,
      header,
      end: true,
      sort: (v) => rate(v, id),
      text: () => '',
      cell: (v) => {
        const r = rate(v, id);
        return r === undefined ? <span className="muted">…</span> : text(r);
      },
    });
    return [
      { id: 'vip', header: 'VIP', cell: (v) => <span className="mono">{vipLabel(v)}</span>, sort: (v) => vipLabel(v), text: (v) => `${vipLabel(v)} ${v.name}` },
      { id: 'protocol', header: 'Protocol', cell: (v) => v.protocol, sort: (v) => v.protocol },
      { id: 'mode', header: 'Mode', cell: (v) => v.mode, sort: (v) => v.mode },
      { id: 'backends', header: 'Backends', cell: (v) => <VIPState vip={v} />, sort: (v) => tally(v.backends).healthy / Math.max(1, v.backends.length), text: (v) => tallyText(tally(v.backends)) },
      perSecond('packets', 'Packets/s'),
      perSecond('bytes', 'Throughput', bitRate),
      perSecond('flows', 'New flows/s'),
      perSecond('dropped', 'Dropped/s'),
      { id: 'announced', header: 'BGP', cell: (v) => <Announced vip={v} />, sort: (v) => (v.announced ? 'announced' : 'withdrawn'), hidden: true },
    ];
  }, [now]);
}
