/** Billing: what VMs have used in a month, prices, and invoices. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useCaller } from '../ui/access';
import { useParam } from '../ui/address';
import { body, page } from '../ui/client';
import { Dialog } from '../ui/dialog';
import { download } from '../ui/download';
import { Card, Facts } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Failure, Notice } from '../ui/notice';
import { Page } from '../ui/page';
import { usePages, wholeList } from '../ui/paging';
import { reason } from '../ui/problem';
import type { Schema } from '../ui/schema';
import { Status } from '../ui/status';
import { Table, type Column } from '../ui/table';
import { Tabs } from '../ui/tabs';
import { DateTime } from '../ui/time';
import { toast } from '../ui/toast';
import { Allowed, api, pageLimit, schemas, useSeesAll, type Invoice, type PricingSpec, type UsageRecord } from './api';
import { monthOf, months, money, span } from './months';

const quantity = new Intl.NumberFormat('en', { maximumFractionDigits: 3 });
/** Stands for VMs without a tenant. */
const none = '-';
const tenantText = (t: string) => (t === none ? 'none' : t);

export function Billing() {
  return (
    <Page title="Billing" lead="What VMs have used, also those that were deleted since. Months begin and end in UTC; a GB is 2³⁰ bytes.">
      <Tabs
        label="Parts of billing"
        inAddress
        tabs={[
          { id: 'usage', label: 'Usage', content: () => <Usage /> },
          { id: 'prices', label: 'Prices', content: () => <Prices /> },
          { id: 'invoices', label: 'Invoices', content: () => <Invoices /> },
        ]}
      />
    </Page>
  );
}

const columns: readonly Column<UsageRecord>[] = [
  { id: 'vm', header: 'VM', cell: (u) => u.vm_name, sort: (u) => u.vm_name },
  { id: 'tenant', header: 'Tenant', cell: (u) => tenantText(u.tenant_id), sort: (u) => u.tenant_id },
  { id: 'cpu', header: 'vCPU hours', cell: (u) => quantity.format(u.cpu_hours), sort: (u) => u.cpu_hours, text: () => '', end: true },
  { id: 'memory', header: 'Memory GB hours', cell: (u) => quantity.format(u.memory_gb_hours), sort: (u) => u.memory_gb_hours, text: () => '', end: true },
  { id: 'disk', header: 'Disk GB hours', cell: (u) => quantity.format(u.disk_gb_hours), sort: (u) => u.disk_gb_hours, text: () => '', end: true },
  { id: 'egress', header: 'Sent GB', cell: (u) => quantity.format(u.network_egress_gb), sort: (u) => u.network_egress_gb, text: () => '', end: true },
  { id: 'cost', header: 'Cost', cell: (u) => money(u.total_cost, u.currency), sort: (u) => u.total_cost, text: () => '', end: true },
];

function Usage() {
  const now = new Date();
  const offered = months(now, 25);
  const [month, setMonth] = useParam('month', offered[0] ?? '', offered);
  const query = span(month, now);
  const pages = usePages(['usage', month], (cursor, signal) => page(api.GET('/api/billing/usage', { params: { query: { cursor, ...query } }, signal }) as Promise<{ data?: UsageRecord[]; response: Response }>), { refreshSeconds: 30 });
  const save = async () => {
    try {
      await download(`/api/billing/usage?${new URLSearchParams({ ...query, format: 'csv', limit: String(pageLimit) })}`, `usage-${month}.csv`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  return (
    <Card
      title="Usage"
      actions={
        <>
          <select className="input" aria-label="Month" value={month} onChange={(e) => setMonth(e.target.value)}>
            {offered.map((m) => (
              <option key={m} value={m}>
                {monthOf(m)}
              </option>
            ))}
          </select>
          <button type="button" className="btn btn-small" disabled={!pages.rows?.length || pages.hasMore} onClick={() => void save()}>
            CSV
          </button>
        </>
      }
      flush
    >
      <Table at="usage." label="Usage" noun="VM" columns={columns} pages={pages} rowKey={(u) => `${u.vm_id} ${u.tenant_id}`} empty={{ icon: 'activity', title: 'Nothing was used in this month' }} />
    </Card>
  );
}

const priceFields = [
  { name: 'cpu_per_hour', label: 'A processor for an hour' },
  { name: 'memory_gb_per_hour', label: 'A GB of memory for an hour' },
  { name: 'disk_gb_per_hour', label: 'A GB of disk for an hour' },
  { name: 'network_egress_per_gb', label: 'A GB that a VM has sent' },
] as const;

function Prices() {
  const queries = useQueryClient();
  const [changing, setChanging] = useState(false);
  const { data: p, error, refetch } = useQuery({ queryKey: ['pricing'], queryFn: ({ signal }) => body(api.GET('/api/billing/pricing', { signal })) });
  if (!p) return <Card title="Prices">{error ? <Failure error={error} retry={() => void refetch()} /> : <span className="skeleton" />}</Card>;
  const exact = new Intl.NumberFormat('en', { maximumFractionDigits: 12 });
  return (
    <Card
      title="Prices"
      actions={
        <Allowed operation="SetPricing">
          <button type="button" className="btn btn-primary" onClick={() => setChanging(true)}>
            Change the prices
          </button>
        </Allowed>
      }
    >
      <div className="stack">
        {p.effective_from === undefined && <Notice tone="info">No prices were set yet: usage is counted, and costs nothing.</Notice>}
        <Facts facts={[...priceFields.map((f) => [f.label, `${exact.format(p[f.name])} ${p.currency}`] as const), p.effective_from !== undefined && ['Since', <DateTime key="s" at={p.effective_from} />]]} />
      </div>
      {changing && (
        <FormDialog<PricingSpec>
          title="Change the prices"
          schema={schemas.SetPricing}
          fields={[...priceFields.map((f) => ({ ...f, hint: '' })), { name: 'currency', label: 'Currency', placeholder: 'EUR' }]}
          values={p}
          action="Set the prices"
          onClose={() => setChanging(false)}
          onSubmit={async (input) => {
            await api.PUT('/api/billing/pricing', { body: input });
            toast('The prices hold from now on.');
            setChanging(false);
            await queries.invalidateQueries({ queryKey: ['pricing'] });
          }}
        >
          <Notice tone="info">They hold from now on. What was used before keeps its price.</Notice>
        </FormDialog>
      )}
    </Card>
  );
}

const invoiceColumns: readonly Column<Invoice>[] = [
  { id: 'id', header: 'Invoice', cell: (i) => i.invoice_id, sort: (i) => i.invoice_id },
  { id: 'tenant', header: 'Tenant', cell: (i) => tenantText(i.tenant_id), sort: (i) => i.tenant_id },
  { id: 'period', header: 'Month', cell: (i) => monthOf(i.period_start.slice(0, 7)), sort: (i) => i.period_start },
  { id: 'total', header: 'Total', cell: (i) => money(i.total, i.currency), sort: (i) => i.total, text: () => '', end: true },
  { id: 'created', header: 'Made', cell: (i) => <DateTime at={i.created} />, sort: (i) => i.created, text: () => '' },
];

interface Wanted {
  tenant: string;
  period: string;
}

function Invoices() {
  const queries = useQueryClient();
  const seesAll = useSeesAll();
  const own = useCaller().org_id;
  const [making, setMaking] = useState(false);
  const [open, setOpen] = useState<Invoice>();
  const pages = usePages(['invoices'], (cursor, signal) => page(api.GET('/api/billing/invoices', { params: { query: { cursor } }, signal })));
  const tenants = useQuery({ queryKey: ['tenants', 'all'], queryFn: ({ signal }) => body(api.GET('/api/tenants', { params: { query: { limit: pageLimit } }, signal })), enabled: seesAll }).data ?? [];
  const owners = seesAll ? [{ value: none, label: 'VMs without a tenant' }, ...tenants.map((t) => ({ value: t.name, label: t.name }))] : [{ value: own || none, label: own || 'VMs without a tenant' }];
  const offered = months(new Date(), 25);
  const schema: Schema = { type: 'object', required: ['tenant', 'period'], properties: { tenant: { type: 'string', enum: owners.map((o) => o.value) }, period: { type: 'string', enum: offered } } };
  return (
    <Card
      title="Invoices"
      actions={
        <Allowed operation="CreateInvoice">
          <button type="button" className="btn btn-primary" onClick={() => setMaking(true)}>
            Make an invoice
          </button>
        </Allowed>
      }
      flush
    >
      <Table at="invoices." label="Invoices" noun="invoice" columns={invoiceColumns} pages={pages} rowKey={(i) => i.invoice_id} actions={(i) => [{ label: 'Look at it', run: () => setOpen(i) }]} empty={{ icon: 'audit', title: 'There are no invoices', text: 'An invoice of a month that is over gets a number, and is the same whenever it is asked for.' }} />
      {making && (
        <FormDialog<Wanted>
          title="Make an invoice"
          schema={schema}
          fields={[
            { name: 'tenant', label: 'Tenant', options: owners },
            { name: 'period', label: 'Month', options: offered.map((m) => ({ value: m, label: monthOf(m) })) },
          ]}
          values={{ tenant: owners[0]?.value, period: offered[1] }}
          preview={(w) => <p className="muted small">{w.period === offered[0] ? 'This month is not over: you get a draft, which has no number and is not stored.' : 'It gets the next number, and cannot be changed or removed.'}</p>}
          action="Make it"
          onClose={() => setMaking(false)}
          onSubmit={async ({ tenant, period }) => {
            const made = await body(api.POST('/api/billing/invoice/{tenant_id}', { params: { path: { tenant_id: tenant } }, body: { period } }));
            setMaking(false);
            setOpen(made);
            await queries.invalidateQueries({ queryKey: ['invoices'] });
          }}
        />
      )}
      {open && <Look invoice={open} onClose={() => setOpen(undefined)} />}
    </Card>
  );
}

function Look({ invoice: i, onClose }: { invoice: Invoice; onClose: () => void }) {
  const save = async () => {
    try {
      await download(`/api/billing/invoices/${encodeURIComponent(i.invoice_id)}?format=csv`, `${i.invoice_id}.csv`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  return (
    <Dialog title={i.status === 'draft' ? 'Draft of an invoice' : i.invoice_id} onClose={onClose} wide>
      <div className="dialog-body stack">
        {i.status === 'draft' && <Notice tone="info">{i.reason || 'The month is not over.'}</Notice>}
        <Facts
          facts={[
            ['State', <Status key="s" tone={i.status === 'final' ? 'ok' : 'idle'}>{i.status}</Status>],
            ['Tenant', tenantText(i.tenant_id)],
            ['Month', monthOf(i.period_start.slice(0, 7))],
            ['Total', <b key="t">{money(i.total, i.currency)}</b>],
          ]}
        />
        <Table
          at="lines."
          label="Lines"
          noun="line"
          columns={[
            { id: 'description', header: 'For', cell: (l) => l.description, sort: (l) => l.description },
            { id: 'quantity', header: 'Quantity', cell: (l) => `${quantity.format(l.quantity)} ${l.unit}`, sort: (l) => l.quantity, text: () => '', end: true },
            { id: 'amount', header: 'Amount', cell: (l) => money(l.amount, i.currency), sort: (l) => l.amount, text: () => '', end: true },
          ]}
          pages={wholeList(i.line_items)}
          rowKey={(l) => `${l.vm_id} ${l.resource}`}
          empty={{ icon: 'audit', title: 'Nothing was used' }}
        />
      </div>
      {i.status === 'final' && (
        <div className="dialog-foot">
          <button type="button" className="btn" onClick={() => void save()}>
            CSV
          </button>
        </div>
      )}
    </Dialog>
  );
}
