/**
 * The actions on a site: edit, revoke, delete. Revoking and deleting ask for confirmation and
 * describe the effect.
 */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import type { BulkAction } from '../../ui/bulk';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Site, type SitePatch } from '../api';

const fields: FieldSpec[] = [
  { name: 'name', label: 'Name' },
  { name: 'labels', label: 'Labels', hint: 'Agents may set labels too, with every heartbeat.', keepEmpty: true },
];

export function useSiteActions(onDeleted: () => void = () => undefined): { actions: (site: Site) => MenuAction[]; bulk: BulkAction<Site>[]; dialog: ReactNode } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [editing, setEditing] = useState<Site>();
  const path = (site: Site) => ({ params: { path: { id: site.id } } });
  const refresh = () => queries.invalidateQueries({ queryKey: ['sites'] });

  const revoke = (site: Site) =>
    confirm({
      title: `Revoke ${site.name}?`,
      body: (
        <>
          <p>
            The agent of <b>{site.name}</b> is shut out at once and for good: its token stops working and its certificates are put on the revocation list.
          </p>
          <p className="muted">Its devices, deployments and events stay on record. To bring the place back, enroll it as a new site.</p>
        </>
      ),
      action: 'Revoke the site',
      danger: true,
      run: async () => {
        await api.POST('/sites/{id}/revoke', path(site));
        await refresh();
      },
      done: `${site.name} is revoked.`,
    });

  const remove = (site: Site) =>
    confirm({
      title: `Delete ${site.name}?`,
      body: (
        <p>
          <b>{site.name}</b> is removed with all its devices, their twins and its deployments, and its certificates are revoked. This cannot be undone. To shut it out but keep its history,
          revoke it instead.
        </p>
      ),
      action: 'Delete the site',
      danger: true,
      run: async () => {
        await api.DELETE('/sites/{id}', path(site));
        onDeleted();
        await refresh();
      },
      done: `${site.name} is deleted.`,
    });

  const actions = (site: Site): MenuAction[] => [
    ...(may('PatchSite') ? [{ label: 'Rename or relabel', run: () => setEditing(site) }] : []),
    ...(may('RevokeSite') && site.status !== 'revoked' ? [{ label: 'Revoke', danger: true, run: () => revoke(site) }] : []),
    ...(may('DeleteSite') ? [{ label: 'Delete', danger: true, run: () => remove(site) }] : []),
  ];
  const dialog = editing && (
    <FormDialog<SitePatch>
      title={`Edit ${editing.name}`}
      schema={schemas.PatchSite}
      fields={fields}
      values={editing}
      action="Save"
      onClose={() => setEditing(undefined)}
      onSubmit={async (input) => {
        const saved = await body(api.PATCH('/sites/{id}', { ...path(editing), body: input }));
        await refresh();
        toast(`${saved.name} is saved.`);
        setEditing(undefined);
      }}
    />
  );
  const bulk: BulkAction<Site>[] = [
    ...(may('RevokeSite')
      ? [
          {
            label: 'Revoke',
            applies: (site: Site) => site.status !== 'revoked',
            body: 'Their agents are shut out at once and for good. Their devices, deployments and events stay on record.',
            danger: true,
            run: (site: Site) => api.POST('/sites/{id}/revoke', path(site)),
            after: refresh,
          },
        ]
      : []),
    ...(may('DeleteSite')
      ? [
          {
            label: 'Delete',
            body: 'They are removed with all their devices, their twins and their deployments. This cannot be undone.',
            danger: true,
            run: (site: Site) => api.DELETE('/sites/{id}', path(site)),
            after: refresh,
          },
        ]
      : []),
  ];
  return { actions, bulk, dialog };
}
