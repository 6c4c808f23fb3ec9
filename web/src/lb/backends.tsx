/** All backends, once for each VIP that they serve. */
import { useMemo, useState } from 'react';
import { Card } from '../ui/facts';
import { Page } from '../ui/page';
import { wholeList } from '../ui/paging';
import { Choice, Table } from '../ui/table';
import type { Backend } from './api';
import { useChanges } from './change-dialog';
import { useBackendColumns } from './columns';
import { useLive } from './live';

const states = ['', 'healthy', 'draining', 'down'] as const;

export function Backends() {
  const { reading } = useLive();
  const [state, setState] = useState<'' | Backend['state']>('');
  const columns = useBackendColumns({ withVIP: true });
  const { actions, dialog } = useChanges();
  const rows = useMemo(() => reading?.vips.flatMap((v) => v.backends.filter((b) => !state || b.state === state).map((b) => ({ ...b, vip: v.name }))), [reading, state]);
  return (
    <Page title="Backends" lead="One row for each VIP that a backend serves. What was sent to a backend is counted for all of them together.">
      <Card flush>
        <Table
          label="Backends"
          noun="backend"
          columns={columns}
          pages={wholeList(rows)}
          rowKey={(b) => `${b.id} ${b.vip}`}
          actions={actions}
          tools={<Choice label="State" value={state} options={states.map((s) => ({ value: s, label: s || 'Any state' }))} onChange={setState} />}
          empty={state ? { icon: 'check', title: `No backend is ${state}` } : { icon: 'server', title: 'No backends are configured' }}
        />
      </Card>
      {dialog}
    </Page>
  );
}
