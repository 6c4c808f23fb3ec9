/** The actions on a backend, for its row and its page. */
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import type { MenuAction } from '../../ui/menu';
import { count, plural } from '../../ui/number';
import { reason } from '../../ui/problem';
import { toast } from '../../ui/toast';
import { api, useMay, type Backend } from '../api';
import { useRefresh } from '../live';

export interface BackendActions {
  discover: (b: Backend) => MenuAction | undefined;
  /** All actions, for a menu. */
  actions: (b: Backend) => MenuAction[];
}

export function useBackendActions(): BackendActions {
  const confirm = useConfirm();
  const allowed = useMay();
  const refresh = useRefresh();
  const at = (b: Backend) => ({ params: { path: { id: b.id } } });
  const look = async (b: Backend) => {
    try {
      const { state, summary: s } = await body(api.POST('/backends/{id}/discover', at(b)));
      const found = `${plural(s.volumes, 'volume')}, ${count(s.new)} new, ${count(s.missing)} missing`;
      toast(state === 'running' ? `${b.name}: ${found} so far. The discovery goes on.` : `${b.name}: ${found}.`, s.missing > 0 ? 'warn' : 'ok');
    } catch (e) {
      toast(`${b.name} was not discovered: ${reason(e)}`, 'bad');
    }
    await refresh();
  };
  const cordon = (b: Backend) =>
    confirm({
      title: `Cordon ${b.name}?`,
      body: (
        <p>
          No new volumes are made in <b>{b.name}</b>, by any policy. What it has stays usable. Jobs that run go on.
        </p>
      ),
      action: 'Cordon the backend',
      danger: true,
      run: async () => {
        await body(api.POST('/backends/{id}/cordon', at(b)));
        await refresh();
      },
      done: `Nothing new is made in ${b.name}.`,
    });
  const uncordon = (b: Backend) =>
    confirm({
      title: `Uncordon ${b.name}?`,
      body: (
        <p>
          New volumes are made in <b>{b.name}</b> again.
        </p>
      ),
      action: 'Uncordon the backend',
      run: async () => {
        await body(api.POST('/backends/{id}/uncordon', at(b)));
        await refresh();
      },
      done: `${b.name} takes new volumes again.`,
    });
  const discover = (b: Backend) => (allowed('DiscoverBackend') ? { label: 'Discover', run: () => void look(b) } : undefined);
  return {
    discover,
    actions: (b) => [
      ...[discover(b)].filter((a) => a !== undefined),
      ...(b.cordoned ? (allowed('UncordonBackend') ? [{ label: 'Uncordon…', run: () => uncordon(b) }] : []) : allowed('CordonBackend') ? [{ label: 'Cordon…', danger: true, run: () => cordon(b) }] : []),
    ],
  };
}
