/** The columns of the list of volumes. */
import { bytes } from '../../ui/size';
import type { Column } from '../../ui/table';
import { Time } from '../../ui/time';
import type { Volume } from '../api';
import { Health, VolumeStatus } from '../states';

/** What a volume takes, or that nobody knows. */
export const usedText = (v: Pick<Volume, 'used_bytes'>) => (v.used_bytes === null ? 'not known' : bytes(v.used_bytes));

export const Used = ({ volume }: { volume: Pick<Volume, 'used_bytes'> }) => (volume.used_bytes === null ? <span className="muted">not known</span> : bytes(volume.used_bytes));

export const volumeColumns: readonly Column<Volume>[] = [
  { id: 'name', header: 'Volume', cell: (v) => v.name, text: (v) => v.name },
  { id: 'state', header: 'State', cell: (v) => <VolumeStatus volume={v} /> },
  { id: 'size', header: 'Size', cell: (v) => <span className="nowrap">{bytes(v.size_bytes)}</span>, end: true },
  { id: 'used', header: 'Used', cell: (v) => <span className="nowrap"><Used volume={v} /></span>, end: true },
  { id: 'kind', header: 'Kind', cell: (v) => v.kind },
  { id: 'policy', header: 'Policy', cell: (v) => v.policy },
  { id: 'tenant', header: 'Tenant', cell: (v) => v.tenant_id },
  { id: 'health', header: 'Health', cell: (v) => <Health condition={v.health} />, hidden: true },
  { id: 'managed', header: 'Made by', cell: (v) => (v.managed ? 'the gateway' : 'others'), hidden: true },
  { id: 'created', header: 'Created', cell: (v) => <Time at={v.created_at} />, hidden: true },
];
