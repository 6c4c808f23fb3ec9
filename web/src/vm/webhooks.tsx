/** Webhooks: URLs that events are sent to, and the log of what was sent. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { body, page } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { SecretOnce } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { Card, Facts } from '../ui/facts';
import { FormDialog } from '../ui/form';
import { Failure, Notice } from '../ui/notice';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { usePages, wholeList } from '../ui/paging';
import { reason } from '../ui/problem';
import { schemaAt, type Schema } from '../ui/schema';
import { Status, type Tone } from '../ui/status';
import { Table, type Column } from '../ui/table';
import { DateTime, Time } from '../ui/time';
import { toast } from '../ui/toast';
import { api, schemas, useSeesAll, type Webhook, type WebhookChange, type WebhookDelivery, type WebhookSpec } from './api';

const columns: readonly Column<Webhook>[] = [
  { id: 'url', header: 'URL', cell: (w) => <span className="mono small">{w.url}</span>, text: (w) => w.url },
  { id: 'state', header: 'State', cell: (w) => (w.enabled ? <Status tone="ok">enabled</Status> : <Status tone="warn" icon="ban">disabled</Status>), text: (w) => (w.enabled ? 'enabled' : 'disabled') },
  { id: 'type', header: 'Type', cell: (w) => w.delivery_type, sort: (w) => w.delivery_type },
  { id: 'events', header: 'Events', cell: (w) => w.events.join(', '), text: (w) => w.events.join(' ') },
  { id: 'tags', header: 'Tags', cell: (w) => w.tags.join(', '), text: (w) => w.tags.join(' '), hidden: true },
  { id: 'tenant', header: 'Of', cell: (w) => w.tenant ?? 'all tenants', sort: (w) => w.tenant ?? '' },
  { id: 'description', header: 'Description', cell: (w) => w.description || w.disabled_reason, text: (w) => `${w.description} ${w.disabled_reason ?? ''}` },
  { id: 'created', header: 'Added', cell: (w) => <Time at={w.created} />, sort: (w) => w.created, text: () => '', hidden: true },
];

const events = (((schemaAt(schemas.CreateWebhook, 'events') as Schema).items as Schema).enum as string[]).map((e) => ({ value: e, label: e }));

export function Webhooks() {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const seesAll = useSeesAll();
  const [open, setOpen] = useState<{ what: 'add' | 'change' | 'log'; hook?: Webhook }>();
  const [made, setMade] = useState<Webhook>();
  const pages = usePages(['webhooks'], (cursor, signal) => page(api.GET('/api/webhooks', { params: { query: { cursor } }, signal })));
  const refresh = () => queries.invalidateQueries({ queryKey: ['webhooks'] });
  const close = () => setOpen(undefined);
  const of = (w: Webhook) => ({ params: { path: { id: w.id } } });
  const test = async (w: Webhook) => {
    try {
      const r = await body(api.POST('/api/webhooks/test', { body: { webhook_id: w.id } }));
      toast(r.status === 'delivered' ? `The test was delivered in ${count(r.duration_ms)} ms.` : `The test was not delivered: ${r.error}`, r.status === 'delivered' ? 'ok' : 'bad');
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  const enable = async (w: Webhook, enabled: boolean) => {
    try {
      await api.PATCH('/api/webhooks/{id}', { ...of(w), body: { enabled } });
      toast(enabled ? 'The webhook is enabled.' : 'The webhook is disabled. What waits for it fails, and can be replayed.');
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await refresh();
  };
  const remove = (w: Webhook) =>
    confirm({
      title: 'Delete this webhook?',
      body: <p>Nothing more is sent to {w.url}, and the log of its deliveries is gone.</p>,
      action: 'Delete the webhook',
      danger: true,
      run: async () => {
        await api.DELETE('/api/webhooks/{id}', of(w));
        await refresh();
      },
      done: 'The webhook is deleted.',
    });
  const add = (
    <button type="button" className="btn btn-primary" onClick={() => setOpen({ what: 'add' })}>
      Add a webhook
    </button>
  );
  return (
    <Page title="Webhooks" lead="Events of VMs and backups, sent to URLs, chats and by mail." actions={add}>
      <Card flush>
        <Table
          label="Webhooks"
          noun="webhook"
          columns={columns}
          pages={pages}
          rowKey={(w) => w.id}
          actions={(w) => [
            { label: 'Deliveries', run: () => setOpen({ what: 'log', hook: w }) },
            { label: 'Send a test', run: () => void test(w) },
            { label: 'Change…', run: () => setOpen({ what: 'change', hook: w }) },
            w.enabled ? { label: 'Disable', run: () => void enable(w, false) } : { label: 'Enable', run: () => void enable(w, true) },
            { label: 'Delete…', danger: true, run: () => remove(w) },
          ]}
          empty={{ icon: 'event', title: 'There are no webhooks', text: 'A webhook tells a program or a chat that a VM has failed, or that a backup was made.', action: add }}
        />
      </Card>
      {open?.what === 'add' && (
        <FormDialog<WebhookSpec>
          title="Add a webhook"
          schema={schemas.CreateWebhook}
          fields={[
            { name: 'url', label: 'URL', placeholder: 'https://example.com/hook' },
            { name: 'delivery_type', label: 'Type', options: [{ value: 'generic', label: 'Signed JSON' }, { value: 'slack', label: 'Slack' }, { value: 'discord', label: 'Discord' }, { value: 'gotify', label: 'Gotify' }, { value: 'email', label: 'Mail' }], hint: 'Chats and mails get the text only. Mail takes smtp://USER@HOST?from=ADDRESS&to=ADDRESS' },
            { name: 'events', label: 'Events', kind: 'several', options: events },
            { name: 'tags', label: 'Tags', hint: 'One a line. Only events of VMs with one of them' },
            { name: 'secret', label: 'Secret', kind: 'password', hint: 'The token of Gotify, or the password of the mail server’s user. Signed JSON gets one when empty' },
            { name: 'description', label: 'Description' },
            ...(seesAll ? [{ name: 'tenant', label: 'Tenant', hint: 'Events of all tenants, when empty' }] : []),
          ]}
          values={{ delivery_type: 'generic', events: ['vm.failed', 'backup.failed'] }}
          action="Add the webhook"
          onClose={close}
          onSubmit={async (input) => {
            const hook = await body(api.POST('/api/webhooks', { body: input }));
            close();
            if (hook.secret) setMade(hook);
            await refresh();
          }}
        />
      )}
      {open?.what === 'change' && open.hook && (
        <FormDialog<WebhookChange>
          title="Change the webhook"
          schema={schemas.UpdateWebhook}
          fields={[
            { name: 'url', label: 'URL' },
            { name: 'events', label: 'Events', kind: 'several', options: events },
            { name: 'tags', label: 'Tags', hint: 'One a line. Only events of VMs with one of them', keepEmpty: true },
            { name: 'description', label: 'Description', keepEmpty: true },
          ]}
          values={open.hook}
          action="Save"
          onClose={close}
          onSubmit={async (input) => {
            await api.PATCH('/api/webhooks/{id}', { ...of(open.hook as Webhook), body: input });
            toast('The webhook is changed.');
            close();
            await refresh();
          }}
        />
      )}
      {open?.what === 'log' && open.hook && <Log hook={open.hook} onClose={close} />}
      {made?.secret && (
        <Dialog title="The webhook’s secret" onClose={() => setMade(undefined)} once>
          <div className="dialog-body">
            <SecretOnce label="It signs the requests, as in Standard Webhooks" value={made.secret} />
          </div>
          <div className="dialog-foot">
            <button type="button" className="btn btn-primary" onClick={() => setMade(undefined)}>
              I have kept it
            </button>
          </div>
        </Dialog>
      )}
    </Page>
  );
}

const tones: Record<WebhookDelivery['status'], Tone> = { pending: 'info', delivered: 'ok', failed: 'bad' };

const deliveryColumns: readonly Column<WebhookDelivery>[] = [
  { id: 'event', header: 'Event', cell: (d) => d.event, sort: (d) => d.event },
  { id: 'status', header: 'State', cell: (d) => <Status tone={tones[d.status]}>{d.status}</Status>, sort: (d) => d.status },
  { id: 'attempts', header: 'Attempts', cell: (d) => count(d.attempts), sort: (d) => d.attempts, text: () => '', end: true },
  { id: 'created', header: 'Happened', cell: (d) => <DateTime at={d.created} />, sort: (d) => d.created, text: () => '' },
];

function Log({ hook, onClose }: { hook: Webhook; onClose: () => void }) {
  const queries = useQueryClient();
  const [looking, setLooking] = useState<WebhookDelivery>();
  const pages = usePages(['webhooks', 'log', hook.id], (cursor, signal) => page(api.GET('/api/webhooks/{id}/deliveries', { params: { path: { id: hook.id }, query: { cursor } }, signal })), { refreshSeconds: 3 });
  const replay = async (d: WebhookDelivery) => {
    try {
      await api.POST('/api/webhooks/{id}/deliveries/{delivery}/replay', { params: { path: { id: hook.id, delivery: d.id } } });
      toast(`${d.event} is delivered again.`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await queries.invalidateQueries({ queryKey: ['webhooks', 'log'] });
  };
  return (
    <Dialog title="Deliveries" onClose={onClose} wide>
      <div className="dialog-body stack">
        <p className="muted small mono">{hook.url}</p>
        {looking ? (
          <Delivery hook={hook} delivery={looking} onBack={() => setLooking(undefined)} onReplay={() => void replay(looking)} />
        ) : (
          <Table
            at="log."
            label="Deliveries"
            noun="delivery"
            nouns="deliveries"
            columns={deliveryColumns}
            pages={pages}
            rowKey={(d) => d.id}
            actions={(d) => [
              { label: 'Look at it', run: () => setLooking(d) },
              ...(d.status === 'pending' ? [] : [{ label: 'Deliver again', run: () => void replay(d) }]),
            ]}
            empty={{ icon: 'event', title: 'Nothing was sent yet', text: 'The log holds seven days.' }}
          />
        )}
      </div>
    </Dialog>
  );
}

function Delivery({ hook, delivery, onBack, onReplay }: { hook: Webhook; delivery: WebhookDelivery; onBack: () => void; onReplay: () => void }) {
  const { data: d, error, refetch } = useQuery({ queryKey: ['webhooks', 'log', hook.id, delivery.id], queryFn: ({ signal }) => body(api.GET('/api/webhooks/{id}/deliveries/{delivery}', { params: { path: { id: hook.id, delivery: delivery.id } }, signal })), refetchInterval: 3_000 });
  return (
    <div className="stack">
      <div className="row">
        <button type="button" className="btn btn-small" onClick={onBack}>
          All deliveries
        </button>
        <button type="button" className="btn btn-small" disabled={!d || d.status === 'pending'} onClick={onReplay}>
          Deliver again
        </button>
      </div>
      {!d ? (
        error ? <Failure error={error} retry={() => void refetch()} /> : <span className="skeleton" />
      ) : (
        <>
          <Facts
            facts={[
              ['Event', d.event],
              ['State', <Status key="s" tone={tones[d.status]}>{d.status}</Status>],
              ['Happened', <DateTime key="c" at={d.created} />],
              ['Replays', count(d.replays)],
            ]}
          />
          <Table
            brief
            label="Attempts"
            noun="attempt"
            columns={[
              { id: 'number', header: 'Attempt', cell: (a) => count(a.number) },
              { id: 'at', header: 'At', cell: (a) => <DateTime at={a.at} /> },
              { id: 'answer', header: 'Answer', cell: (a) => a.http_status ?? <span className="muted">none</span> },
              { id: 'took', header: 'Took', cell: (a) => `${count(a.duration_ms)} ms` },
              { id: 'error', header: 'Error', cell: (a) => a.error },
            ]}
            pages={wholeList(d.log ?? [])}
            rowKey={(a) => String(a.number)}
            empty={{ icon: 'clock', title: 'It was not tried yet' }}
          />
          {d.body !== undefined && (
            // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
            <pre className="output" tabIndex={0} aria-label="Body">
              {d.body}
            </pre>
          )}
          {d.status === 'failed' && <Notice tone="info">It is not tried again by itself.</Notice>}
        </>
      )}
    </div>
  );
}
