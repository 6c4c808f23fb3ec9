/** The actions on a route: edit, enable or disable, delete. */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import type { BulkAction } from '../../ui/bulk';
import { useConfirm } from '../../ui/confirm';
import type { MenuAction } from '../../ui/menu';
import { toast } from '../../ui/toast';
import { reason } from '../../ui/problem';
import { api, useMay, type Route } from '../api';
import { RouteDialog } from './form';

export function useRouteActions(onDeleted: () => void = () => undefined): { actions: (route: Route) => MenuAction[]; bulk: BulkAction<Route>[]; dialog: ReactNode } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [editing, setEditing] = useState<Route>();
  const path = (route: Route) => ({ params: { path: { id: route.id } } });
  const refresh = () => queries.invalidateQueries({ queryKey: ['routes'] });

  const enable = async (route: Route) => {
    try {
      await api.PATCH('/routes/{id}', { ...path(route), body: { enabled: true } });
      await refresh();
      toast(`${route.name} is enabled.`);
    } catch (e) {
      toast(reason(e), 'bad');
    }
  };
  const disable = (route: Route) =>
    confirm({
      title: `Disable ${route.name}?`,
      body: (
        <p>
          <b>{route.name}</b> delivers nothing more. Deliveries that wait become dead letters, which can be replayed when the route is enabled again.
        </p>
      ),
      action: 'Disable the route',
      danger: true,
      run: async () => {
        await api.PATCH('/routes/{id}', { ...path(route), body: { enabled: false } });
        await refresh();
      },
      done: `${route.name} is disabled.`,
    });
  const remove = (route: Route) =>
    confirm({
      title: `Delete ${route.name}?`,
      body: (
        <p>
          <b>{route.name}</b> and its signing secret are removed. Deliveries that wait become dead letters, and dead letters of a deleted route cannot be replayed.
        </p>
      ),
      action: 'Delete the route',
      danger: true,
      run: async () => {
        await api.DELETE('/routes/{id}', path(route));
        onDeleted();
        await refresh();
      },
      done: `${route.name} is deleted.`,
    });
  const actions = (route: Route): MenuAction[] => [
    ...(may('PatchRoute') ? [{ label: 'Edit', run: () => setEditing(route) }, route.enabled ? { label: 'Disable', run: () => disable(route) } : { label: 'Enable', run: () => void enable(route) }] : []),
    ...(may('DeleteRoute') ? [{ label: 'Delete', danger: true, run: () => remove(route) }] : []),
  ];
  const turn = (enabled: boolean) => (route: Route) => api.PATCH('/routes/{id}', { ...path(route), body: { enabled } });
  const bulk: BulkAction<Route>[] = [
    ...(may('PatchRoute')
      ? [
          { label: 'Enable', applies: (route: Route) => !route.enabled, body: 'They deliver events again from now on.', run: turn(true), after: refresh },
          { label: 'Disable', applies: (route: Route) => route.enabled, body: 'They deliver nothing more. Deliveries that wait become dead letters.', danger: true, run: turn(false), after: refresh },
        ]
      : []),
    ...(may('DeleteRoute') ? [{ label: 'Delete', body: 'They and their signing secrets are removed. Dead letters of a deleted route cannot be replayed.', danger: true, run: (route: Route) => api.DELETE('/routes/{id}', path(route)), after: refresh }] : []),
  ];
  return { actions, bulk, dialog: editing && <RouteDialog route={editing} onClose={() => setEditing(undefined)} /> };
}
