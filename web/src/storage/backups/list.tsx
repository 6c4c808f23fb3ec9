/** All backups that the caller may see, those of volumes that are gone, and the import from a bucket. */
import { useDeferredValue, useState, type ReactNode } from 'react';
import { Link } from 'wouter';
import { useParam } from '../../ui/address';
import { page } from '../../ui/client';
import { Card } from '../../ui/facts';
import { Page } from '../../ui/page';
import { usePages, type Pages } from '../../ui/paging';
import { Choice, Table, type TableProps } from '../../ui/table';
import { Allowed, api, useSeesAll, type Backup, type BackupState } from '../api';
import { backupPath, bucketLabel, useBuckets } from '../links';
import { backupStates } from '../states';
import { useBackupActions } from './actions';
import { backupColumns } from './columns';
import { ImportBackups } from './import';

export function BackupTable({ label, pages, tools, at = '', empty, left = [] }: { label: string; pages: Pages<Backup>; tools?: ReactNode; at?: string; empty: TableProps<Backup>['empty']; /** Columns that are left out. */ left?: readonly string[] }) {
  const seesAll = useSeesAll();
  const buckets = useBuckets().data;
  const { actions, bulk, dialog } = useBackupActions();
  return (
    <>
      <Table
        at={at}
        label={label}
        noun="backup"
        columns={backupColumns(buckets).filter((c) => (seesAll || c.id !== 'tenant') && !left.includes(c.id))}
        pages={pages}
        rowKey={(b) => b.id}
        href={backupPath}
        actions={actions}
        bulk={bulk}
        tools={tools}
        empty={empty}
      />
      {dialog}
    </>
  );
}

export function Backups() {
  const seesAll = useSeesAll();
  const [of, setOf] = useParam<'any' | 'gone'>('of', 'any', ['any', 'gone']);
  const [state, setState] = useParam<BackupState | ''>('state', '', backupStates);
  const [bucket, setBucket] = useParam('bucket', '');
  const [tenant, setTenant] = useParam('tenant', '');
  const [importing, setImporting] = useState(false);
  const buckets = useBuckets().data ?? [];
  const wantedTenant = useDeferredValue(tenant.trim());
  const orphans = of === 'gone';
  const query = { ...(wantedTenant && { tenant: wantedTenant }), ...(!orphans && state && { state }), ...(!orphans && bucket && { bucket_id: bucket }) };
  const pages = usePages(
    ['backups', 'list', of, query],
    (cursor, signal) => {
      const params = { params: { query: { ...query, cursor } }, signal };
      return page(orphans ? api.GET('/maintenance/orphans', params) : api.GET('/backups', params));
    },
    { refreshSeconds: 3 },
  );
  return (
    <Page
      title="Backups"
      lead="A backup is a copy of a volume in a bucket. Each can be restored by itself."
      actions={
        <>
          <Allowed operation="ImportBackups">
            <button type="button" className="btn" onClick={() => setImporting(true)}>
              Import from a bucket…
            </button>
          </Allowed>
          <Allowed operation="RestoreBackup">
            <Link href="/restore" className="btn btn-primary">
              Restore a backup
            </Link>
          </Allowed>
        </>
      }
    >
      <Card flush>
        <BackupTable
          label="Backups"
          pages={pages}
          tools={
            <>
              <Choice
                label="Volumes"
                value={of}
                options={[
                  { value: 'any', label: 'Of any volume' },
                  { value: 'gone', label: 'Of volumes that are gone' },
                ]}
                onChange={setOf}
              />
              {!orphans && <Choice label="State" value={state} options={[{ value: '', label: 'Any state' }, ...backupStates.map((s) => ({ value: s, label: s }))]} onChange={setState} />}
              {!orphans && <Choice label="Bucket" value={bucket} options={[{ value: '', label: 'All buckets' }, ...buckets.map((b) => ({ value: b.id, label: bucketLabel(b) }))]} onChange={setBucket} />}
              {seesAll && <input className="input narrow" aria-label="Tenant, exactly" placeholder="Tenant, exactly" maxLength={63} value={tenant} onChange={(e) => setTenant(e.target.value)} />}
            </>
          }
          empty={
            orphans
              ? { icon: 'check', title: 'No backup is left of a volume that is gone' }
              : Object.keys(query).length > 0
                ? { icon: 'search', title: 'No backup matches' }
                : { icon: 'clock', title: 'There are no backups', text: 'A backup is made from the page of its volume, or by a schedule.' }
          }
        />
      </Card>
      {importing && <ImportBackups buckets={buckets} onClose={() => setImporting(false)} />}
    </Page>
  );
}
