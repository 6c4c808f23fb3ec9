/** The disks of a VM, in the console of any service: add, change, remove. */
import { useState, type ReactNode } from 'react';
import { useConfirm } from '../confirm';
import { Copyable } from '../copy';
import type { FieldSpec } from '../draft';
import { Card } from '../facts';
import { FormDialog } from '../form';
import { Notice } from '../notice';
import { wholeList } from '../paging';
import type { Schema } from '../schema';
import { Table, type Column } from '../table';
import { toast } from '../toast';
import { LimitsPreview } from './fields';
import { addedText, changedText, diskLimits, DiskState, inUse, removedText, sizeText, type Disk, type Machine } from './state';

interface Asking {
  schema: Schema;
  /** Whether the limits are among the fields. */
  limits: boolean;
}

interface Props<D extends Disk, Spec, Change> {
  vm: Machine;
  disks: D[] | undefined;
  /** Why they could not be read. */
  error: unknown;
  retry: () => void;
  /** Columns after those that all consoles have. */
  more?: readonly Column<D>[];
  /** Why there are none. */
  none: string;
  /** What stands above the table. */
  children?: ReactNode;
  /** Whether the guest did not let go of the disk when it was asked to. */
  kept?: (d: D) => boolean;
  /** Reads what was changed. */
  refresh: () => Promise<unknown>;
  /** What the person may do now. Without a part, it is not offered. */
  add?: (Asking & { fields: readonly FieldSpec[]; run: (input: Spec) => Promise<Disk> }) | undefined;
  change?: (Asking & { fields: (d: D) => readonly FieldSpec[]; run: (d: D, input: Change) => Promise<Disk> }) | undefined;
  /** `run` returns the disks that the VM has then. */
  remove?: { can: (d: D) => boolean; run: (d: D) => Promise<readonly Pick<Disk, 'name'>[]> } | undefined;
}

const Unknown = () => <span className="muted">not known</span>;

const columns = <D extends Disk>(vm: Machine, kept: (d: D) => boolean): Column<D>[] => [
  { id: 'name', header: 'Disk', cell: (d) => d.name, text: (d) => d.name },
  { id: 'state', header: 'Attached', cell: (d) => <DiskState vm={vm} disk={d} kept={kept(d)} /> },
  { id: 'size', header: 'Size', cell: (d) => <span className="nowrap">{sizeText(d)}{d.read_only && ', read-only'}</span> },
  { id: 'limits', header: 'Limits', cell: (d) => (d.iops === undefined ? <Unknown /> : diskLimits(d) || <span className="muted">none</span>) },
  { id: 'serial', header: 'In a Linux guest', cell: (d) => (d.serial ? <Copyable text={`/dev/disk/by-id/virtio-${d.serial}`} /> : <span className="muted">without a serial number</span>) },
  { id: 'image', header: 'Copy of', cell: (d) => d.image ?? null },
];

export function DiskCard<D extends Disk, Spec, Change>({ vm, disks, error, retry, more = [], none, children, kept = () => false, refresh, add, change, remove }: Props<D, Spec, Change>) {
  const confirm = useConfirm();
  const [asked, setAsked] = useState<'add' | D>();
  const close = () => setAsked(undefined);
  const done = async (text: string) => {
    close();
    toast(text);
    await refresh();
  };
  const askRemoval = (d: D, run: NonNullable<typeof remove>['run']) => {
    let outcome = '';
    confirm({
      title: `Remove the disk ${d.name} of ${vm.name}?`,
      body: (
        <>
          <p>
            <b>{d.name}</b> is removed with all that is on its {sizeText(d)}. No backup of {vm.name} has it.
          </p>
          {d.state === 'attached' && inUse(vm) && <p>Unmount it in the guest first: the guest is asked to let go of it, and has 20 seconds. The guest of a VM that boots a kernel keeps it until the VM stops.</p>}
        </>
      ),
      typed: d.name,
      action: 'Remove the disk',
      danger: true,
      run: async () => {
        try {
          outcome = removedText(vm, await run(d), d.name);
        } finally {
          await refresh();
        }
      },
      done: () => outcome,
    });
  };
  const held = disks?.filter((d) => d.state === 'attached' && inUse(vm) && kept(d)) ?? [];
  return (
    <Card
      title="Disks"
      actions={
        add && (
          <button type="button" className="btn btn-primary" onClick={() => setAsked('add')}>
            Add a disk
          </button>
        )
      }
      flush
    >
      {children}
      {held.length > 0 && (
        <div className="card-body">
          <Notice tone="warn">
            <strong>The guest has not let go of {held.map((d) => d.name).join(', ')}.</strong> Unmount it in the guest and remove it again, or stop the VM first.
          </Notice>
        </div>
      )}
      <Table
        brief
        label={`Disks of ${vm.name}`}
        noun="disk"
        columns={[...columns(vm, kept), ...more]}
        pages={wholeList(disks, error, retry)}
        rowKey={(d) => d.name}
        actions={(d) => [
          ...(change && d.state !== 'removing' && change.fields(d).length > 0 ? [{ label: 'Change…', run: () => setAsked(d) }] : []),
          ...(remove?.can(d) ? [{ label: 'Remove…', danger: true, run: () => askRemoval(d, remove.run) }] : []),
        ]}
        empty={{ icon: 'server', title: 'The VM has no disks', text: none }}
      />
      {asked === 'add' && add && (
        <FormDialog<Spec>
          title={`Add a disk to ${vm.name}`}
          schema={add.schema}
          two
          fields={add.fields}
          preview={(input) => add.limits && <LimitsPreview of={input} />}
          action="Add the disk"
          onClose={close}
          onSubmit={async (input) => done(addedText(vm, await add.run(input)))}
        >
          {inUse(vm) && <p className="muted small">The guest sees the disk at once if the VM boots its disk or firmware. A VM that boots a kernel gets it at its next start.</p>}
        </FormDialog>
      )}
      {asked !== undefined && asked !== 'add' && change && (
        <FormDialog<Change>
          title={`Change the disk ${asked.name} of ${vm.name}`}
          schema={change.schema}
          fields={change.fields(asked)}
          values={asked}
          preview={(input) => change.limits && <LimitsPreview of={input} />}
          action="Change the disk"
          onClose={close}
          onSubmit={async (input) => done(changedText(await change.run(asked, input)))}
        />
      )}
    </Card>
  );
}
