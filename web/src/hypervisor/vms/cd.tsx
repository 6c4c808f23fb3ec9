/** The CD drive of a VM. */
import { useQueryClient } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { CDCard } from '../../ui/disks/cd';
import { api, schemas, type VM } from '../api';
import { cdNames, useImages } from '../images/names';
import { atField } from '../refused';
import { changeable } from '../states';

const waits = (vm: Pick<VM, 'pending'>) => vm.pending.includes('cd');

export function CD({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const images = cdNames(useImages());
  const path = { params: { path: { id: vm.id } } };
  const done = async (call: Promise<VM>) => {
    const after = await call;
    await queries.invalidateQueries({ queryKey: ['vms'] });
    return waits(after);
  };
  return (
    <CDCard
      vm={vm.name}
      image={vm.cd?.image}
      waits={waits(vm)}
      known
      may={
        changeable(vm)
          ? {
              schema: schemas.InsertCD,
              images,
              hint: 'A disk of the catalog, such as an ISO image',
              insert: (input) => done(body(atField(api.PUT('/v1/vms/{id}/cd', { ...path, body: input })))),
              eject: () => done(body(api.DELETE('/v1/vms/{id}/cd', path))),
            }
          : undefined
      }
    >
      {vm.backend !== 'qemu' && <p className="muted small">VMs of the backend {vm.backend} have no drive.</p>}
    </CDCard>
  );
}
