/** The columns of lists of deployments. */
import type { Column } from '../../ui/table';
import { words } from '../../ui/status';
import { Time } from '../../ui/time';
import type { Deployment } from '../api';
import { SiteLink } from '../links';
import { DeploymentState } from '../states';
import { known } from './known';

export const deploymentColumns: Column<Deployment>[] = [
  { id: 'name', header: 'Name', cell: (d) => d.name, sort: (d) => d.name },
  { id: 'site', header: 'Site', cell: (d) => <SiteLink id={d.site_id} />, text: (d) => d.site_id },
  { id: 'status', header: 'Status', cell: (d) => <DeploymentState deployment={d} />, sort: (d) => known(d).status, text: (d) => words(known(d).status) },
  { id: 'desired', header: 'Should be', cell: (d) => d.desired_state, sort: (d) => d.desired_state },
  { id: 'version', header: 'Version', cell: (d) => d.version, sort: (d) => d.version },
  { id: 'image', header: 'Image', cell: (d) => <code className="clip" title={d.image}>{d.image}</code>, sort: (d) => d.image },
  { id: 'revision', header: 'Revision', cell: (d) => (d.observed_revision < d.revision ? `${d.revision}, agent at ${d.observed_revision}` : d.revision), sort: (d) => d.revision, end: true },
  { id: 'changed', header: 'Changed', cell: (d) => <Time at={d.updated_at} />, sort: (d) => d.updated_at, text: () => '' },
];
