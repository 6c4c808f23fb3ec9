/** The actions on an image, for its row and its page. */
import { useState, type ReactNode } from 'react';
import { useLocation } from 'wouter';
import { useCaller } from '../../ui/access';
import { useConfirm } from '../../ui/confirm';
import type { MenuAction } from '../../ui/menu';
import { api, useMay, useSeesAll, type Image } from '../api';
import { inMaking } from '../states';
import { ResizeImage, useRefresh } from './forms';

/** Whether the caller may change the image: not one that is shared by all tenants, unless they see everything. */
export function useOwns(): (image: Pick<Image, 'tenant' | 'shared'>) => boolean {
  const seesAll = useSeesAll();
  const own = useCaller().org_id;
  return (i) => seesAll || (!i.shared && (i.tenant ?? '') === own);
}

export function useImageActions(onDeleted: () => void = () => undefined): { actions: (image: Image) => MenuAction[]; dialog: ReactNode } {
  const allowed = useMay();
  const owns = useOwns();
  const confirm = useConfirm();
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const [resizing, setResizing] = useState<Image>();
  const remove = (i: Image) =>
    confirm({
      title: `Delete the image ${i.name}?`,
      body: <p>{i.state === 'completed' ? `No VM can be made of ${i.name} any more. An image that VMs were made of is not deleted: the refusal names them.` : `What is known of ${i.name}, and its log, are removed.`}</p>,
      action: 'Delete the image',
      danger: true,
      run: async () => {
        await api.DELETE('/api/images/{id}', { params: { path: { id: i.id } } });
        onDeleted();
        await refresh();
      },
      done: `The image ${i.name} is deleted.`,
    });
  const actions = (i: Image): MenuAction[] => [
    ...(i.state === 'completed' && allowed('CreateVM') ? [{ label: 'Create a VM of it', run: () => navigate(`/new-vm?image=${encodeURIComponent(i.image)}`) }] : []),
    ...(i.state === 'completed' && i.kind === 'disk' && owns(i) && allowed('ResizeImage') ? [{ label: 'Resize…', run: () => setResizing(i) }] : []),
    ...(!inMaking(i) && owns(i) && allowed('DeleteImage') ? [{ label: 'Delete…', danger: true, run: () => remove(i) }] : []),
  ];
  return { actions, dialog: resizing && <ResizeImage image={resizing} onClose={() => setResizing(undefined)} /> };
}
