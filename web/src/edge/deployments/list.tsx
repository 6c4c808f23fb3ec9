/** All deployments in the caller's scope. */
import { useState } from 'react';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Table } from '../../ui/table';
import { Allowed, api } from '../api';
import { SiteChoice } from '../site-choice';
import { useDeploymentActions } from './actions';
import { deploymentColumns } from './columns';
import { DeploymentDialog } from './form';

export function Deployments() {
  const [site, setSite] = useParam('site', '');
  const [creating, setCreating] = useState(false);
  const { actions, bulk, dialog } = useDeploymentActions();
  const pages = usePages(['deployments', 'list', site], (cursor, signal) => page(api.GET('/deployments', { params: { query: { cursor, ...(site && { site_id: site }) } }, signal })));
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
          tools={<SiteChoice value={site} onChange={setSite} />}
          empty={{ icon: 'deployment', title: site ? 'Nothing is deployed to this site' : 'Nothing is deployed yet', text: 'Choose a site and an image; policy packs say which images may run.', action: create }}
        />
      </Card>
      {creating && <DeploymentDialog site={site} onClose={() => setCreating(false)} />}
      {dialog}
    </Page>
  );
}
