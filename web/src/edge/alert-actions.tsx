/** The actions on an alert: acknowledge, silence, end the silence. */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import type { BulkAction } from '../ui/bulk';
import { body } from '../ui/client';
import { useConfirm } from '../ui/confirm';
import { FormDialog } from '../ui/form';
import type { MenuAction } from '../ui/menu';
import { toast } from '../ui/toast';
import { api, schemas, useMay, type Alert } from './api';

/** The proposed duration of a silence: a shift. */
const proposedMs = 8 * 3600_000;

/** The actions on an alert, and the dialog for their input. */
export function useAlertActions(): { actions: (alert: Alert) => MenuAction[]; bulk: BulkAction<Alert>[]; dialog: ReactNode } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<{ what: 'acknowledge' | 'silence'; alert: Alert; /** The proposed end of a silence. */ until?: string }>();
  const path = (alert: Alert) => ({ params: { path: { id: alert.id } } });
  const done = async (text: string) => {
    setAsking(undefined);
    toast(text);
    await queries.invalidateQueries({ queryKey: ['alerts'] });
  };
  const unsilence = (alert: Alert) =>
    confirm({
      title: 'End the silence?',
      body: <p>The activity log tells of “{alert.message}” again, and of the next alert of this kind about it.</p>,
      action: 'End the silence',
      run: async () => {
        await body(api.POST('/alerts/{id}/unsilence', path(alert)));
        await queries.invalidateQueries({ queryKey: ['alerts'] });
      },
      done: 'The alert is silenced no longer.',
    });
  const actions = (alert: Alert): MenuAction[] =>
    alert.status === 'firing'
      ? [
          ...(may('AcknowledgeAlert') ? [{ label: 'Acknowledge', run: () => setAsking({ what: 'acknowledge', alert }) }] : []),
          ...(may('SilenceAlert') ? [{ label: 'Silence', run: () => setAsking({ what: 'silence', alert, until: new Date(Date.now() + proposedMs).toISOString() }) }] : []),
          ...(may('UnsilenceAlert') && alert.silenced_until ? [{ label: 'End the silence', run: () => unsilence(alert) }] : []),
        ]
      : [];
  const dialog = asking && (asking.what === 'acknowledge' ? (
    <FormDialog<{ note?: string }>
      title="Acknowledge the alert"
      schema={schemas.AcknowledgeAlert}
      fields={[{ name: 'note', label: 'Note', kind: 'multiline', wide: true }]}
      action="Acknowledge"
      onClose={() => setAsking(undefined)}
      onSubmit={async (input) => {
        await body(api.POST('/alerts/{id}/acknowledge', { ...path(asking.alert), body: input }));
        await done('The alert is acknowledged.');
      }}
    >
      <p>{asking.alert.message}</p>
      <p className="muted small">Others see that you take care of it, until it resolves.</p>
    </FormDialog>
  ) : (
    <FormDialog<{ until: string; reason: string }>
      title="Silence the alert"
      schema={schemas.SilenceAlert}
      fields={[
        { name: 'until', label: 'Until', hint: 'Your time, within a year.' },
        { name: 'reason', label: 'Reason', wide: true },
      ]}
      values={{ until: asking.until }}
      action="Silence"
      onClose={() => setAsking(undefined)}
      onSubmit={async (input) => {
        await body(api.POST('/alerts/{id}/silence', { ...path(asking.alert), body: input }));
        await done('The alert is silenced.');
      }}
    >
      <p>{asking.alert.message}</p>
      <p className="muted small">The activity log leaves it out, and so the next alert of this kind about the same. It is still listed and counted.</p>
    </FormDialog>
  ));
  const silenceFor = (alert: Alert) =>
    api.POST('/alerts/{id}/silence', { ...path(alert), body: { until: new Date(Date.now() + proposedMs).toISOString(), reason: 'silenced together with others' } });
  const after = () => queries.invalidateQueries({ queryKey: ['alerts'] });
  const bulk: BulkAction<Alert>[] = [
    ...(may('AcknowledgeAlert')
      ? [{ label: 'Acknowledge', applies: (a: Alert) => a.status === 'firing' && !a.acknowledged_at, body: 'Others see that you take care of them, until they resolve.', run: (a: Alert) => api.POST('/alerts/{id}/acknowledge', { ...path(a), body: {} }), after }]
      : []),
    ...(may('SilenceAlert')
      ? [{ label: 'Silence for 8 hours', applies: (a: Alert) => a.status === 'firing' && !a.silenced_until, body: 'The activity log leaves them out. They are still listed and counted.', run: silenceFor, after }]
      : []),
    ...(may('UnsilenceAlert')
      ? [{ label: 'End the silence', applies: (a: Alert) => a.status === 'firing' && Boolean(a.silenced_until), body: 'The activity log shows them again.', run: (a: Alert) => api.POST('/alerts/{id}/unsilence', path(a)), after }]
      : []),
  ];
  return { actions, bulk, dialog };
}
