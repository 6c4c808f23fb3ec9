/** The CD drive of a VM. */
import { useQueryClient } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { CDCard } from '../../ui/disks/cd';
import { api, schemas, useMay, type VM } from '../api';
import { cdNames, useReadyImages } from '../images/ready';
import { at } from '../links';
import { changeable, flexible, seen } from '../states';

const waits = (vm: Pick<VM, 'pending'>) => vm.pending.includes('cd');

export function CD({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const allowed = useMay();
  const images = useReadyImages();
  const done = async (call: Promise<VM>) => {
    const after = await call;
    await queries.invalidateQueries({ queryKey: ['vms'] });
    return waits(after);
  };
  return (
    <CDCard
      vm={vm.name}
      image={vm.cd}
      waits={waits(vm)}
      known={seen(vm)}
      may={
        changeable(vm) && allowed('InsertCD') && allowed('EjectCD')
          ? {
              schema: schemas.InsertCD,
              images: cdNames(images, vm),
              hint: 'Its name, usually of an installation medium',
              insert: (input) => done(body(api.PUT('/api/vms/{name}/cd', { ...at(vm), body: input }))),
              eject: () => done(body(api.DELETE('/api/vms/{name}/cd', at(vm)))),
            }
          : undefined
      }
    >
      {!flexible(vm) && <p className="muted small">VMs of the backend {vm.backend} have no drive.</p>}
    </CDCard>
  );
}
