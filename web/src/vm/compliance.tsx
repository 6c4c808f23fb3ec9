/** Compliance: scans of VMs against a profile, what was found, and what to do. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useDeferredValue, useState } from 'react';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { Dialog } from '../ui/dialog';
import { Card, Facts } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Notice } from '../ui/notice';
import { count, percent } from '../ui/number';
import { Page } from '../ui/page';
import { usePages, wholeList } from '../ui/paging';
import type { Schema } from '../ui/schema';
import { Status, type Tone } from '../ui/status';
import { Choice, Table, type Column } from '../ui/table';
import { DateTime } from '../ui/time';
import { toast } from '../ui/toast';
import { Allowed, api, schemas, useSeesAll, type ComplianceCheck, type ComplianceResult } from './api';

const tones: Record<ComplianceResult['status'], Tone> = { running: 'info', completed: 'ok', failed: 'bad' };
const checkTones: Record<ComplianceCheck['status'], Tone> = { passed: 'ok', failed: 'bad', skipped: 'idle' };

const columns: readonly Column<ComplianceResult>[] = [
  { id: 'vm', header: 'VM', cell: (r) => r.vm_name, sort: (r) => r.vm_name },
  { id: 'profile', header: 'Profile', cell: (r) => r.profile_id, sort: (r) => r.profile_id },
  { id: 'status', header: 'State', cell: (r) => <Status tone={tones[r.status]}>{r.status}</Status>, sort: (r) => r.status },
  { id: 'score', header: 'Score', cell: (r) => (r.status === 'completed' && r.passed + r.failed > 0 ? percent(r.score / 100) : ''), sort: (r) => r.score, text: () => '', end: true },
  { id: 'failed', header: 'Failed', cell: (r) => count(r.failed), sort: (r) => r.failed, text: () => '', end: true },
  { id: 'passed', header: 'Passed', cell: (r) => count(r.passed), sort: (r) => r.passed, text: () => '', end: true },
  { id: 'skipped', header: 'Skipped', cell: (r) => count(r.skipped), sort: (r) => r.skipped, text: () => '', end: true },
  { id: 'started', header: 'Began', cell: (r) => <DateTime at={r.started} />, sort: (r) => r.started, text: () => '' },
  { id: 'tenant', header: 'Tenant', cell: (r) => r.tenant ?? '', text: (r) => r.tenant ?? '', hidden: true },
];

interface Scan {
  vm_name: string;
  profile_id: 'level-1' | 'level-2';
  tenant?: string;
}

const schema: Schema = { ...schemas.StartComplianceScan, required: ['vm_name', 'profile_id'], properties: { vm_name: { type: 'string', minLength: 1, maxLength: 63 }, tenant: { type: 'string', maxLength: 63 }, ...schemas.StartComplianceScan.properties } };

export function Compliance() {
  const queries = useQueryClient();
  const seesAll = useSeesAll();
  const [vm, setVM] = useParam('vm', '');
  const wanted = useDeferredValue(vm.trim());
  const [scanning, setScanning] = useState(false);
  const [open, setOpen] = useState<ComplianceResult>();
  const pages = usePages(['compliance', wanted], (cursor, signal) => page(api.GET('/api/compliance/results', { params: { query: { cursor, ...(wanted && { vm: wanted }) } }, signal })), { refreshSeconds: 5 });
  const profiles = useQuery({ queryKey: ['profiles'], queryFn: ({ signal }) => body(api.GET('/api/compliance/profiles', { signal })), staleTime: Infinity }).data ?? [];
  const running = useQuery({ queryKey: ['vms', 'running'], queryFn: ({ signal }) => body(api.GET('/api/vms', { params: { query: { state: 'running', limit: 200 } }, signal })), enabled: scanning }).data?.items.map((v) => v.name) ?? [];
  const scan = (
    <Allowed operation="StartComplianceScan">
      <button type="button" className="btn btn-primary" onClick={() => setScanning(true)}>
        Scan a VM
      </button>
    </Allowed>
  );
  return (
    <Page title="Compliance" lead="How VMs and their guests are set up, against our own checks in the spirit of the well-known benchmarks." actions={scan}>
      <Card flush>
        <Table
          label="Scans"
          noun="scan"
          columns={columns}
          pages={pages}
          rowKey={(r) => r.scan_id}
          actions={(r) => [{ label: 'Results', run: () => setOpen(r) }]}
          tools={<input className="input narrow" aria-label="VM, exactly" placeholder="VM, exactly" maxLength={63} value={vm} onChange={(e) => setVM(e.target.value)} />}
          empty={{ icon: 'policy', title: wanted ? 'No scan of this VM' : 'Nothing was scanned yet', text: 'A scan checks the configuration of a running VM, and its guest through the agent.' }}
        />
      </Card>
      {scanning && (
        <FormDialog<Scan>
          title="Scan a VM"
          schema={schema}
          fields={[
            { name: 'vm_name', label: 'VM', suggestions: running, hint: 'One that runs' },
            ...(seesAll ? [{ name: 'tenant', label: 'Its tenant', hint: 'Where several tenants have a VM of this name' }] : []),
            { name: 'profile_id', label: 'Profile', options: profiles.map((p) => ({ value: p.id, label: `${p.name}: ${p.check_count} checks` })) },
          ]}
          values={{ profile_id: 'level-1', vm_name: wanted }}
          preview={(input) => <p className="muted small">{profiles.find((p) => p.id === input.profile_id)?.description}</p>}
          action="Begin the scan"
          onClose={() => setScanning(false)}
          onSubmit={async ({ vm_name, profile_id, tenant }) => {
            await api.POST('/api/compliance/scan/{vm_name}', { params: { path: { vm_name }, query: tenant ? { tenant } : {} }, body: { profile_id } });
            toast(`${vm_name} is being checked.`, 'info');
            setScanning(false);
            await queries.invalidateQueries({ queryKey: ['compliance'] });
          }}
        />
      )}
      {open && <Results result={open} onClose={() => setOpen(undefined)} />}
    </Page>
  );
}

const checkColumns: readonly Column<ComplianceCheck>[] = [
  { id: 'title', header: 'Check', cell: (c) => c.title, sort: (c) => c.title },
  { id: 'status', header: 'Result', cell: (c) => <Status tone={checkTones[c.status]}>{c.status}</Status>, sort: (c) => c.status },
  { id: 'evidence', header: 'What was found', cell: (c) => c.evidence, text: (c) => c.evidence },
  { id: 'remedy', header: 'What to do', cell: (c) => (c.status === 'failed' ? c.remedy : ''), text: (c) => c.remedy },
  { id: 'scope', header: 'Of', cell: (c) => (c.scope === 'vm' ? 'the VM' : 'its guest'), sort: (c) => c.scope },
];

function Results({ result: r, onClose }: { result: ComplianceResult; onClose: () => void }) {
  const [status, setStatus] = useState<'' | ComplianceCheck['status']>(r.failed > 0 ? 'failed' : '');
  return (
    <Dialog title={`Scan of ${r.vm_name}: ${r.profile_id}`} onClose={onClose} wide>
      <div className="dialog-body stack">
        {r.error && <Notice tone="bad">{r.error}</Notice>}
        <Facts
          facts={[
            ['Began', <DateTime key="b" at={r.started} />],
            ['Passed', count(r.passed)],
            ['Failed', count(r.failed)],
            ['Skipped', `${count(r.skipped)}, which never counts as passed`],
          ]}
        />
        <Table
          at="checks."
          label={`Checks of ${r.vm_name}`}
          noun="check"
          columns={checkColumns}
          pages={wholeList(r.checks.filter((c) => status === '' || c.status === status))}
          rowKey={(c) => c.id}
          tools={<Choice label="Result" value={status} options={[{ value: '', label: 'Any result' }, { value: 'failed', label: 'failed' }, { value: 'passed', label: 'passed' }, { value: 'skipped', label: 'skipped' }]} onChange={setStatus} />}
          empty={{ icon: 'policy', title: r.status === 'running' ? 'The scan goes on' : 'No check has this result' }}
        />
      </div>
    </Dialog>
  );
}
