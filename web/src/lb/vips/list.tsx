/** All VIPs of the node. */
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { wholeList } from '../../ui/paging';
import { Table } from '../../ui/table';
import { vipPath } from '../links';
import { useLive } from '../live';
import { useVIPColumns } from './columns';

export function VIPs() {
  const { reading } = useLive();
  const columns = useVIPColumns();
  return (
    <Page title="VIPs" lead="Virtual addresses of this node and what they lead to.">
      <Card flush>
        <Table
          label="VIPs"
          noun="VIP"
          columns={columns}
          pages={wholeList(reading && [...reading.vips])}
          rowKey={(v) => v.name}
          href={(v) => vipPath(v.name)}
          empty={{ icon: 'balance', title: 'No VIPs are configured', text: 'They stand in the configuration file, which is loaded again when it changes.' }}
        />
      </Card>
    </Page>
  );
}
