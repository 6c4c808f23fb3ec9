/** The CD drive of a VM, in the console of any service: insert and eject. */
import { useState, type ReactNode } from 'react';
import { useConfirm } from '../confirm';
import { Card, Facts } from '../facts';
import { FormDialog } from '../form';
import type { Schema } from '../schema';
import { Status } from '../status';
import { toast } from '../toast';

interface Props {
  /** The name of the VM. */
  vm: string;
  /** The image in the drive. Without one, it is empty. */
  image: string | undefined;
  /** Whether the guest has it from the next start on. */
  waits: boolean;
  /** Whether the image is known to be there, and not only when the VM was last seen. */
  known: boolean;
  /** What the person may do now. Without it, nothing is offered. Both return whether the guest has it from the next start on. */
  may?: { schema: Schema; images: readonly string[]; hint: string; insert: (input: { image: string }) => Promise<boolean>; eject: () => Promise<boolean> } | undefined;
  /** What stands below. */
  children?: ReactNode;
}

export function CDCard({ vm, image, waits, known, may, children }: Props) {
  const confirm = useConfirm();
  const [inserting, setInserting] = useState(false);
  const askEject = (name: string, eject: () => Promise<boolean>) => {
    let outcome = '';
    confirm({
      title: `Eject ${name}?`,
      body: (
        <p>
          <b>{vm}</b> has an empty drive afterwards. The image stays in the catalog.
        </p>
      ),
      action: 'Eject the CD',
      run: async () => {
        outcome = (await eject()) ? `The guest of ${vm} has ${name} until the next start.` : `${name} is ejected.`;
      },
      done: () => outcome,
    });
  };
  const actions = may && (
    <>
      <button type="button" className="btn" onClick={() => setInserting(true)}>
        {image ? 'Insert another CD' : 'Insert a CD'}
      </button>
      {image && (
        <button type="button" className="btn" onClick={() => askEject(image, may.eject)}>
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
            [known ? 'Holds' : 'Held when the VM was last seen', image ? <code key="h">{image}</code> : <span key="h" className="muted">nothing</span>],
            waits && ['For the guest', <Status key="w" tone="info" icon="clock">from the next start on</Status>],
          ]}
        />
        {waits && <p className="muted small">The process of the VM has what was in the drive when it started.</p>}
        {children}
      </div>
      {inserting && may && (
        <FormDialog<{ image: string }>
          title={`Insert a CD into ${vm}`}
          schema={may.schema}
          fields={[{ name: 'image', label: 'Image', suggestions: may.images, ...(may.images[0] && { placeholder: may.images[0] }), hint: may.hint }]}
          action="Insert the CD"
          onClose={() => setInserting(false)}
          onSubmit={async (input) => {
            const later = await may.insert(input);
            setInserting(false);
            toast(later ? `${input.image} is inserted. The guest of ${vm} has it from the next start on.` : `${input.image} is in the drive of ${vm}.`);
          }}
        >
          {image && <p className="muted small">It takes the place of {image}.</p>}
        </FormDialog>
      )}
    </Card>
  );
}
