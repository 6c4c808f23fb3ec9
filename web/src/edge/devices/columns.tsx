/** The columns of lists of devices. */
import { Tags } from '../../ui/facts';
import type { Column } from '../../ui/table';
import { Time } from '../../ui/time';
import type { Device } from '../api';
import { SiteLink } from '../links';

const known = (text: string) => text || <span className="muted">unknown</span>;

export const deviceColumns: Column<Device>[] = [
  { id: 'device', header: 'Device', cell: (d) => d.device_id, sort: (d) => d.device_id },
  { id: 'name', header: 'Name', cell: (d) => d.name || <span className="muted">none</span>, sort: (d) => d.name },
  { id: 'site', header: 'Site', cell: (d) => <SiteLink id={d.site_id} />, text: (d) => d.site_id },
  { id: 'model', header: 'Model', cell: (d) => known(d.model), sort: (d) => d.model },
  { id: 'firmware', header: 'Firmware', cell: (d) => known(d.firmware_version), sort: (d) => d.firmware_version },
  { id: 'labels', header: 'Labels', cell: (d) => <Tags labels={d.labels} />, text: (d) => Object.entries(d.labels).map((l) => l.join('=')).join(' ') },
  { id: 'seen', header: 'Last seen', cell: (d) => <Time at={d.last_seen_at} />, sort: (d) => d.last_seen_at, text: () => '' },
  { id: 'registered', header: 'Registered', cell: (d) => <Time at={d.registered_at} />, sort: (d) => d.registered_at, text: () => '', hidden: true },
];
