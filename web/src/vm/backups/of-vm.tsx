/** The backups of one VM. */
import { useState } from 'react';
import { useLocation } from 'wouter';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { usePages } from '../../ui/paging';
import { Allowed, api, type VM } from '../api';
import { pathOf } from '../links';
import { MakeBackup } from './forms';
import { BackupTable } from './table';

export function VMBackups({ vm }: { vm: VM }) {
  const [, navigate] = useLocation();
  const [making, setMaking] = useState(false);
  const pages = usePages(
    ['backups', 'of', vm.id],
    async (cursor, signal) => {
      const { items, next } = await page(api.GET('/api/backups', { params: { query: { cursor, vm: vm.name } }, signal }));
      // Another tenant's VM, or one that is deleted, may have had the name.
      return { items: items.filter((b) => b.vm_id === vm.id), next };
    },
    { refreshSeconds: 3 },
  );
  return (
    <Card
      title="Backups"
      actions={
        <Allowed operation="CreateBackup">
          <button type="button" className="btn btn-primary" onClick={() => setMaking(true)}>
            Create a backup
          </button>
        </Allowed>
      }
      flush
    >
      <BackupTable brief at="backups." label={`Backups of ${vm.name}`} pages={pages} onRestoring={(name) => name !== vm.name && navigate(pathOf(name, vm.tenant))} />
      {making && <MakeBackup vm={vm} onClose={() => setMaking(false)} />}
    </Card>
  );
}
