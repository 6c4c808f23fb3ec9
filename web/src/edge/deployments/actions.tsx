/** The actions on a deployment: edit, start or stop, roll back, delete. */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import type { BulkAction } from '../../ui/bulk';
import { useConfirm } from '../../ui/confirm';
import type { MenuAction } from '../../ui/menu';
import { api, useMay, useSites, type Deployment, type DeploymentPatch } from '../api';
import { DeploymentDialog } from './form';

export function useDeploymentActions(onDeleted: () => void = () => undefined): { actions: (deployment: Deployment) => MenuAction[]; bulk: BulkAction<Deployment>[]; dialog: ReactNode } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const { name: siteName } = useSites();
  const [editing, setEditing] = useState<Deployment>();
  const path = (d: Deployment) => ({ params: { path: { id: d.id } } });
  const refresh = () => queries.invalidateQueries({ queryKey: ['deployments'] });
  const patch = (d: Deployment, change: DeploymentPatch) => async () => {
    await api.PATCH('/deployments/{id}', { ...path(d), body: change });
    await refresh();
  };

  const stop = (d: Deployment) =>
    confirm({
      title: `Stop ${d.name}?`,
      body: (
        <p>
          The container <b>{d.name}</b> on <b>{siteName(d.site_id)}</b> is stopped as soon as its agent hears of it. It stays deployed and can be started again.
        </p>
      ),
      action: 'Stop it',
      danger: true,
      run: patch(d, { desired_state: 'stopped' }),
      done: `${d.name} is to be stopped.`,
    });
  const start = (d: Deployment) =>
    confirm({
      title: `Start ${d.name}?`,
      body: (
        <p>
          <b>{siteName(d.site_id)}</b> runs <code>{d.image}</code> as <b>{d.name}</b> as soon as its agent hears of it.
        </p>
      ),
      action: 'Start it',
      run: patch(d, { desired_state: 'running' }),
      done: `${d.name} is to be running.`,
    });
  const back = (d: Deployment, previous: { image: string; version: string }) =>
    confirm({
      title: `Go back to ${previous.version}?`,
      body: (
        <p>
          <b>{d.name}</b> on <b>{siteName(d.site_id)}</b> runs <code>{previous.image}</code> ({previous.version}) again, in place of <code>{d.image}</code> ({d.version}).
        </p>
      ),
      action: `Go back to ${previous.version}`,
      run: patch(d, { image: previous.image, version: previous.version }),
      done: `${d.name} goes back to ${previous.version}.`,
    });
  const remove = (d: Deployment) =>
    confirm({
      title: `Delete ${d.name}?`,
      body: (
        <p>
          <b>{d.name}</b> is removed from <b>{siteName(d.site_id)}</b>: its agent stops the container and removes it.
        </p>
      ),
      action: 'Delete the deployment',
      danger: true,
      run: async () => {
        await api.DELETE('/deployments/{id}', path(d));
        onDeleted();
        await refresh();
      },
      done: `${d.name} is deleted.`,
    });
  const actions = (d: Deployment): MenuAction[] => [
    ...(may('PatchDeployment')
      ? [
          { label: 'Edit', run: () => setEditing(d) },
          d.desired_state === 'running' ? { label: 'Stop', run: () => stop(d) } : { label: 'Start', run: () => start(d) },
          ...(d.previous ? [{ label: `Go back to ${d.previous.version}`, run: () => d.previous && back(d, d.previous) }] : []),
        ]
      : []),
    ...(may('DeleteDeployment') ? [{ label: 'Delete', danger: true, run: () => remove(d) }] : []),
  ];
  const want = (state: 'running' | 'stopped') => (d: Deployment) => api.PATCH('/deployments/{id}', { ...path(d), body: { desired_state: state } });
  const bulk: BulkAction<Deployment>[] = [
    ...(may('PatchDeployment')
      ? [
          { label: 'Start', applies: (d: Deployment) => d.desired_state !== 'running', body: 'Their sites run them as soon as their agents hear of it.', run: want('running'), after: refresh },
          { label: 'Stop', applies: (d: Deployment) => d.desired_state === 'running', body: 'They are stopped as soon as their agents hear of it. They stay deployed and can be started again.', danger: true, run: want('stopped'), after: refresh },
        ]
      : []),
    ...(may('DeleteDeployment') ? [{ label: 'Delete', body: 'Their agents stop the containers and remove them.', danger: true, run: (d: Deployment) => api.DELETE('/deployments/{id}', path(d)), after: refresh }] : []),
  ];
  return { actions, bulk, dialog: editing && <DeploymentDialog deployment={editing} onClose={() => setEditing(undefined)} /> };
}
