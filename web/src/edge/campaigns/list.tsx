/** All campaigns in the caller's scope. */
import { useState } from 'react';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { count } from '../../ui/number';
import { Page } from '../../ui/page';
import { usePages } from '../../ui/paging';
import { Bar } from '../../ui/progress';
import { Choice, sortFor, Table, useServerList, type Column } from '../../ui/table';
import { Time } from '../../ui/time';
import { Allowed, api, type Campaign } from '../api';
import { CampaignState } from '../states';
import { CampaignDialog } from './form';
import { outcomeParts } from './outcomes';

/** As the overview counts them: campaigns that wait for a decision do not count as running. */
type StatusFilter = '' | Campaign['status'] | 'paused';

const sorts = { name: 'name', created: 'id' } as const;

const columns: Column<Campaign>[] = [
  { id: 'name', header: 'Name', cell: (c) => c.name, sort: (c) => c.name },
  { id: 'status', header: 'Status', cell: (c) => <CampaignState campaign={c} />, sort: (c) => c.status },
  { id: 'version', header: 'Version', cell: (c) => c.version, sort: (c) => c.version },
  { id: 'stage', header: 'Stage', cell: (c) => (c.current_stage < 0 ? <span className="muted">not begun</span> : `${c.current_stage + 1} of ${c.stages.length}`), sort: (c) => c.current_stage },
  {
    id: 'progress',
    header: 'Progress',
    cell: (c) => (
      <div style={{ minWidth: 90 }}>
        <Bar total={c.counts.total} parts={outcomeParts(c)} />
      </div>
    ),
  },
  { id: 'devices', header: 'Devices', cell: (c) => (c.status === 'draft' ? <span className="muted">at start</span> : count(c.counts.total)), sort: (c) => c.counts.total, end: true },
  { id: 'failed', header: 'Failed', cell: (c) => count(c.counts.failed), sort: (c) => c.counts.failed, end: true },
  { id: 'created', header: 'Created', cell: (c) => <Time at={c.created_at} />, sort: (c) => c.created_at, text: () => '' },
];

export function Campaigns() {
  const [status, setStatus] = useParam<StatusFilter>('status', '', ['draft', 'running', 'paused', 'completed', 'aborted']);
  const { q, order } = useServerList();
  const sort = sortFor(order, sorts);
  const [creating, setCreating] = useState(false);
  const query = {
    ...(status === 'paused' ? { paused: true } : status === 'running' ? { status, paused: false } : status && { status }),
    ...(q && { q }),
    ...(sort && { sort }),
  };
  const pages = usePages(['campaigns', 'list', query], (cursor, signal) => page(api.GET('/ota/campaigns', { params: { query: { cursor, ...query } }, signal })), { refreshSeconds: 5 });
  const create = (
    <Allowed operation="CreateCampaign">
      <button type="button" className="btn btn-primary" onClick={() => setCreating(true)}>
        Create a campaign
      </button>
    </Allowed>
  );
  return (
    <Page title="Campaigns" lead="Updates of many devices in stages: a few first, all only when those succeed." actions={create}>
      <Card flush>
        <Table
          label="Campaigns"
          noun="campaign"
          columns={columns}
          pages={pages}
          rowKey={(c) => c.id}
          href={(c) => `/campaigns/${encodeURIComponent(c.id)}`}
          server={{ search: 'Name, version, artifact or ID', sort: Object.keys(sorts) }}
          tools={
            <Choice
              label="Status"
              value={status}
              options={[
                { value: '', label: 'Any status' },
                { value: 'draft', label: 'Draft' },
                { value: 'running', label: 'Running' },
                { value: 'paused', label: 'Waiting for a decision' },
                { value: 'completed', label: 'Completed' },
                { value: 'aborted', label: 'Aborted' },
              ]}
              onChange={setStatus}
            />
          }
          empty={status ? { icon: 'campaign', title: status === 'paused' ? 'No campaign waits for a decision' : `No campaign is ${status}` } : { icon: 'campaign', title: 'No campaigns yet', text: 'A draft asks nothing of any device until it is started.', action: create }}
        />
      </Card>
      {creating && <CampaignDialog onClose={() => setCreating(false)} />}
    </Page>
  );
}
