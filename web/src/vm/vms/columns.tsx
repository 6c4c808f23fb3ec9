/** The columns of the list of VMs. */
import { plural } from '../../ui/number';
import { mib } from '../../ui/size';
import type { Column } from '../../ui/table';
import { Time } from '../../ui/time';
import type { VM } from '../api';
import { stateText, VMState } from '../states';

/** Words beside each other, as labels are. */
export function TagList({ tags }: { tags: readonly string[] }) {
  if (tags.length === 0) return null;
  return (
    <span className="tags">
      {tags.map((t) => (
        <span key={t} className="tag">
          {t}
        </span>
      ))}
    </span>
  );
}

export const vmColumns: readonly Column<VM>[] = [
  { id: 'name', header: 'VM', cell: (v) => v.name, text: (v) => v.name },
  { id: 'state', header: 'State', cell: (v) => <VMState vm={v} />, text: (v) => stateText(v).text },
  { id: 'size', header: 'Size', cell: (v) => <span className="nowrap">{plural(v.cpus, 'vCPU')}, {mib(v.memory)}{v.disk > 0 && `, ${v.disk} GiB`}</span> },
  { id: 'ips', header: 'Addresses', cell: (v) => v.ips.join(', ') },
  { id: 'image', header: 'Image', cell: (v) => v.image },
  { id: 'tags', header: 'Tags', cell: (v) => <TagList tags={v.tags} /> },
  { id: 'tenant', header: 'Tenant', cell: (v) => v.tenant ?? '' },
  { id: 'node', header: 'Host', cell: (v) => v.node, hidden: true },
  { id: 'created', header: 'Created', cell: (v) => <Time at={v.created} />, hidden: true },
];
