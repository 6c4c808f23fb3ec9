/** The CD drive of a VM: insert and eject. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useConfirm } from '../../ui/confirm';
import { Card, Facts } from '../../ui/facts';
import { FormDialog } from '../../ui/form';
import { Status } from '../../ui/status';
import { toast } from '../../ui/toast';
import { body } from '../../ui/client';
import { api, schemas, type VM } from '../api';
import { cdNames, useImages } from '../images/names';
import { atField } from '../refused';
import { changeable } from './disk-state';

const waits = (vm: Pick<VM, 'pending'>) => vm.pending.includes('cd');

export function CD({ vm }: { vm: VM }) {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const images = cdNames(useImages());
  const [inserting, setInserting] = useState(false);
  const path = { params: { path: { id: vm.id } } };
  const refresh = () => queries.invalidateQueries({ queryKey: ['vms'] });

  const eject = (name: string) => {
    let outcome = '';
    confirm({
      title: `Eject ${name}?`,
      body: (
        <p>
          <b>{vm.name}</b> has an empty drive afterwards. The image stays in the catalog.
        </p>
      ),
      action: 'Eject the CD',
      run: async () => {
        const after = await body(api.DELETE('/v1/vms/{id}/cd', path));
        outcome = waits(after) ? `The guest of ${vm.name} has ${name} until the next start.` : `${name} is ejected.`;
        await refresh();
      },
      done: () => outcome,
    });
  };
  const { cd } = vm;
  const actions = changeable(vm) && (
    <>
      <button type="button" className="btn" onClick={() => setInserting(true)}>
        {cd ? 'Insert another CD' : 'Insert a CD'}
      </button>
      {cd && (
        <button type="button" className="btn" onClick={() => eject(cd.image)}>
          Eject…
        </button>
      )}
    </>
  );
  return (
    <Card title="CD drive" actions={actions}>
      <div className="stack-tight">
        <Facts
          facts={[
            ['Holds', cd ? <code key="h">{cd.image}</code> : <span key="h" className="muted">nothing</span>],
            waits(vm) && ['For the guest', <Status key="w" tone="info" icon="clock">from the next start on</Status>],
          ]}
        />
        {waits(vm) && <p className="muted small">The process of the VM has what was in the drive when it started.</p>}
        {vm.backend !== 'qemu' && <p className="muted small">VMs of the backend {vm.backend} have no drive.</p>}
      </div>
      {inserting && (
        <FormDialog<{ image: string }>
          title={`Insert a CD into ${vm.name}`}
          schema={schemas.InsertCD}
          fields={[{ name: 'image', label: 'Image', suggestions: images, placeholder: images[0], hint: 'A disk of the catalog, such as an ISO image' }]}
          action="Insert the CD"
          onClose={() => setInserting(false)}
          onSubmit={async (input) => {
            const after = await body(atField(api.PUT('/v1/vms/{id}/cd', { ...path, body: input })));
            setInserting(false);
            toast(waits(after) ? `${input.image} is inserted. The guest of ${vm.name} has it from the next start on.` : `${input.image} is in the drive of ${vm.name}.`);
            await refresh();
          }}
        >
          {cd && <p className="muted small">It takes the place of {cd.image}.</p>}
        </FormDialog>
      )}
    </Card>
  );
}
