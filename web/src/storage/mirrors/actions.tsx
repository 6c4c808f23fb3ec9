/** The actions on a mirror, for its row and its page. What stands in the way is said by the service, which asks both sites. */
import { useState, type ReactNode } from 'react';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Mirror } from '../api';
import { useRefresh } from '../live';
import { exactSpan, spanField } from '../spans';

/** The shortest time that a copy may be old, in seconds: people write whole minutes. */
const leastRPO = 60;

export function useMirrorActions(site: (cluster: string) => string): { actions: (mirror: Mirror) => MenuAction[]; dialog: ReactNode } {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const [limiting, setLimiting] = useState<Mirror>();
  const at = (m: Mirror) => ({ params: { path: { id: m.id } } });
  const begin = (call: () => Promise<unknown>) => async () => {
    await call();
    await refresh();
  };
  const failOver = (m: Mirror, force: boolean) =>
    confirm({
      title: `Fail over to ${site(m.cluster_id)}${force ? ' by force' : ''}?`,
      body: force ? (
        <p>
          {m.image} becomes primary at {site(m.cluster_id)} although the other site does not answer, or the sites do not reach each other. <b>What has not arrived by then is lost.</b> Make sure that its clients are stopped: if they still write, both sites differ from then on, and one of them has to be copied again.
        </p>
      ) : (
        <p>
          {m.image} is demoted at the other site, and promoted at {site(m.cluster_id)} as soon as that has everything. Stop its clients first: while one has it open, the failover is refused.
        </p>
      ),
      ...(force && { typed: m.image }),
      action: force ? 'Fail over by force' : 'Fail over',
      danger: true,
      run: begin(() => api.POST('/dr/failover', { body: { mirror_id: m.id, confirm: true, force, peer_replayed: false } })),
      done: `The failover of ${m.image}${force ? ' by force' : ''} has begun.`,
    });
  const promote = (m: Mirror) =>
    confirm({
      title: `Promote ${m.image} at ${site(m.cluster_id)}?`,
      body: <p>It becomes the one that is written to. That is refused unless it is demoted at the other site, and this one has everything of that.</p>,
      action: 'Promote',
      danger: true,
      run: begin(() => api.POST('/dr/mirrors/{id}/promote', at(m))),
      done: `${m.image} is being promoted.`,
    });
  const demote = (m: Mirror) =>
    confirm({
      title: `Demote ${m.image} at ${site(m.cluster_id)}?`,
      body: <p>Nobody can write to it until it is promoted here or at the other site. While a client has it open, that is refused.</p>,
      action: 'Demote',
      danger: true,
      run: begin(() => api.POST('/dr/mirrors/{id}/demote', at(m))),
      done: `${m.image} is being demoted.`,
    });
  const resync = (m: Mirror) =>
    confirm({
      title: `Copy ${m.image} again to ${site(m.cluster_id)}?`,
      body: (
        <p>
          <b>What {site(m.cluster_id)} has of it is thrown away.</b> That is refused unless the other site is primary and answers.
        </p>
      ),
      typed: m.image,
      action: 'Copy it again',
      danger: true,
      run: begin(() => api.POST('/dr/mirrors/{id}/resync', at(m))),
      done: `${m.image} is copied again.`,
    });
  const rehearse = (m: Mirror) =>
    confirm({
      title: `Rehearse the failover of ${m.image}?`,
      body: <p>All of the copy is read through a clone, and compared with a snapshot of the original. Neither of them changes.</p>,
      action: 'Rehearse',
      run: begin(() => api.POST('/dr/mirrors/{id}/rehearse', at(m))),
      done: `The copy of ${m.image} is being read.`,
    });
  const end = (m: Mirror) =>
    confirm({
      title: `End the mirroring of ${m.image}?`,
      body: <p>Its copy at the other site is removed. The volume at {site(m.cluster_id)} stays.</p>,
      typed: m.image,
      action: 'End the mirroring',
      danger: true,
      run: begin(() => api.DELETE('/volumes/{id}/mirror', { params: { path: { id: m.volume_id } } })),
      done: `The mirroring of ${m.image} ends.`,
    });
  return {
    actions: (m) => [
      ...(m.role === 'secondary' && allowed('FailOver') ? [{ label: 'Fail over to here…', run: () => failOver(m, false) }] : []),
      ...(allowed('RehearseFailover') ? [{ label: 'Rehearse…', run: () => rehearse(m) }] : []),
      ...(m.mode === 'snapshot' && allowed('SetRPO') ? [{ label: 'Limit its age…', run: () => setLimiting(m) }] : []),
      ...(m.role === 'secondary' && allowed('PromoteMirror') ? [{ label: 'Promote…', run: () => promote(m) }] : []),
      ...(m.role === 'primary' && allowed('DemoteMirror') ? [{ label: 'Demote…', danger: true, run: () => demote(m) }] : []),
      ...(m.role === 'secondary' && allowed('ResyncMirror') ? [{ label: 'Copy again…', danger: true, run: () => resync(m) }] : []),
      ...(m.role === 'secondary' && allowed('FailOver') ? [{ label: 'Fail over by force…', danger: true, run: () => failOver(m, true) }] : []),
      ...((m.role === 'primary' || m.state === 'error') && allowed('DisableMirror') ? [{ label: 'End the mirroring…', danger: true, run: () => end(m) }] : []),
    ],
    dialog: limiting && (
      <FormDialog<{ rpo_seconds?: number }>
        title={`How old the copy of ${limiting.image} may be`}
        schema={{ ...schemas.SetRPO, required: [] }}
        fields={[spanField('rpo_seconds', 'Age', { placeholder: '15 minutes', hint: `Now ${limiting.rpo_seconds > 0 ? exactSpan(limiting.rpo_seconds) : 'nothing is said'}. Empty: nothing is sent, and nobody is told` }, leastRPO)]}
        values={{ rpo_seconds: limiting.rpo_seconds || undefined }}
        action="Limit its age"
        onClose={() => setLimiting(undefined)}
        onSubmit={async ({ rpo_seconds = 0 }) => {
          await body(api.POST('/dr/mirrors/{id}/rpo', { ...at(limiting), body: { rpo_seconds } }));
          setLimiting(undefined);
          toast(rpo_seconds > 0 ? `The copy of ${limiting.image} may be ${exactSpan(rpo_seconds)} old.` : `Changes of ${limiting.image} are not sent any more.`);
          await refresh();
        }}
      >
        <p>The gateway sends what has changed twice in this time, and opens an alert when the copy is older.</p>
      </FormDialog>
    ),
  };
}
