/** All deployments in the caller's scope. */
import { useState } from 'react';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Choice, sortFor, Table, useServerList, valuesOf } from '../../ui/table';
import { Allowed, api } from '../api';
import { SiteChoice } from '../site-choice';
import { useDeploymentActions } from './actions';
import { deploymentColumns } from './columns';
import { DeploymentDialog } from './form';
import type { Known } from './known';

const sorts = { name: 'name' } as const;

/** Of several statuses, those that the overview counts together. */
const statuses = [
  { value: '', label: 'Any status' },
  { value: 'pending', label: 'Pending' },
  { value: 'pulling', label: 'Pulling' },
  { value: 'running', label: 'Running' },
  { value: 'stopped', label: 'Stopped' },
  { value: 'failed', label: 'Failed' },
  { value: 'denied', label: 'Denied' },
  { value: 'failed,denied', label: 'Failed or denied' },
  { value: 'rolled_back', label: 'Rolled back' },
  { value: 'unknown', label: 'Unknown: site not online' },
  { value: 'failed,denied,unknown', label: 'Failed, denied or unknown' },
] as const;

type StatusFilter = (typeof statuses)[number]['value'];

export function Deployments() {
  const [status, setStatus] = useParam<StatusFilter>('status', '', statuses.map((s) => s.value));
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const [site, setSite] = useParam('site', '');
  const [creating, setCreating] = useState(false);
  const { actions, bulk, dialog } = useDeploymentActions();
  const query = { ...(site && { site_id: site }), ...(status && { status: valuesOf<Known['status']>(status) }), ...(q && { q }), ...(sort && { sort }) };
  const pages = usePages(['deployments', 'list', query], (cursor, signal) => page(api.GET('/deployments', { params: { query: { cursor, ...query } }, signal })));
  const create = (
    <Allowed operation="CreateDeployment">
      <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
        Deploy a container
      </button>
    </Allowed>
  );
  return (
    <Page title="Deployments" lead="Containers that sites should run. The agent of each site sees to it and says how it goes." actions={create}>
      <Card flush>
        <Table
          label="Deployments"
          noun="deployment"
          columns={deploymentColumns}
          pages={pages}
          rowKey={(d) => d.id}
          href={(d) => `/deployments/${encodeURIComponent(d.id)}`}
          actions={actions}
          bulk={bulk}
          server={{ search: site ? 'Name, image, version or ID' : 'Name, image, version, site or ID', sort: Object.keys(sorts) }}
          tools={
            <>
              <Choice label="Status" value={status} options={statuses} onChange={setStatus} />
              <SiteChoice value={site} onChange={setSite} />
            </>
          }
          empty={status ? { icon: 'deployment', title: 'No deployment has this status' } : { icon: 'deployment', title: site ? 'Nothing is deployed to this site' : 'Nothing is deployed yet', text: 'Choose a site and an image; policy packs say which images may run.', action: create }}
        />
      </Card>
      {creating && <DeploymentDialog site={site} onClose={() => setCreating(false)} />}
      {dialog}
    </Page>
  );
}
