/** The columns of lists of backends. */
import { useMemo } from 'react';
import { Link } from 'wouter';
import { short } from '../ui/number';
import type { Column } from '../ui/table';
import type { Backend } from './api';
import { backendLabel, vipPath } from './links';
import { useLive } from './live';
import { bitRate } from './rates';
import { BackendState, backendState } from './states';

/** A backend of one VIP, with the VIP's name. */
export type BackendOf = Backend & { vip: string };

function BackendName({ backend: b }: { backend: Backend }) {
  if (b.port) return <span className="mono">{backendLabel(b)}</span>;
  return (
    <>
      <span className="mono">{b.address}</span> <span className="muted nowrap">same port</span>
    </>
  );
}

/** `withVIP` adds the VIP's column, for lists of the backends of all VIPs. */
export function useBackendColumns({ withVIP = false } = {}): readonly Column<BackendOf>[] {
  const { now } = useLive();
  return useMemo(() => {
    const rate = (b: BackendOf) => now?.backends.get(b.id);
    const vip: Column<BackendOf>[] = withVIP ? [{ id: 'vip', header: 'VIP', cell: (b) => <Link href={vipPath(b.vip)} className="mono">{b.vip}</Link>, sort: (b) => b.vip }] : [];
    return [
      { id: 'backend', header: 'Backend', cell: (b) => <BackendName backend={b} />, sort: (b) => backendLabel(b) },
      ...vip,
      { id: 'state', header: 'State', cell: (b) => <BackendState backend={b} />, sort: (b) => backendState(b) },
      { id: 'detail', header: 'Probe', cell: (b) => b.detail || <span className="muted">nothing known</span>, text: (b) => b.detail, sort: (b) => b.detail },
      { id: 'weight', header: 'Weight', end: true, cell: (b) => (b.weightOverridden ? <span className="nowrap">{b.weight} (override)</span> : b.weight), sort: (b) => b.weight, text: () => '' },
      {
        id: 'packets',
        header: 'Packets/s',
        end: true,
        cell: (b) => {
          const r = rate(b);
          return r ? short(r.packets) : <span className="muted">…</span>;
        },
        sort: (b) => rate(b)?.packets,
        text: () => '',
      },
      {
        id: 'bits',
        header: 'Throughput',
        end: true,
        cell: (b) => {
          const r = rate(b);
          return r ? bitRate(r.bytes) : <span className="muted">…</span>;
        },
        sort: (b) => rate(b)?.bytes,
        text: () => '',
      },
    ];
  }, [now, withVIP]);
}
