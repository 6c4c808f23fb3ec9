/** The actions on a VM, for its row and its page. */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { reason } from '../../ui/problem';
import type { BulkAction } from '../../ui/bulk';
import { useConfirm } from '../../ui/confirm';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { toast } from '../../ui/toast';
import { api, schemas, type Stop, type VM, type VMPatch } from '../api';
import { networkLimits } from '../format';
import { atRest, limitable, may, resettable, type Verb } from '../states';

interface Open {
  what: 'stop' | 'restart' | 'clone' | 'resize' | 'limit';
  vm: VM;
}

export interface VMActions {
  /** All actions that make sense in the VM's state, for a menu. */
  actions: (vm: VM) => MenuAction[];
  /** What can be done with many of them. */
  bulk: BulkAction<VM>[];
  /** The most common action in this state, if there is one. */
  first: (vm: VM) => MenuAction | undefined;
  /** The open form, to be rendered on the page. */
  dialog: ReactNode;
}

const path = (vm: VM) => ({ params: { path: { id: vm.id } } });

export function useVMActions(onDeleted: () => void = () => undefined): VMActions {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const [open, setOpen] = useState<Open>();
  const close = () => setOpen(undefined);
  const refresh = () => Promise.all(['vms', 'live'].map((key) => queries.invalidateQueries({ queryKey: [key] })));

  // Actions whose duration depends on the guest are not awaited: the state shows their progress.
  const tell = async (done: string, call: Promise<unknown>) => {
    setTimeout(() => void refresh(), 150);
    try {
      await call;
      toast(done);
    } catch (e) {
      toast(reason(e), 'bad');
    }
    await refresh();
  };
  const verbs = {
    start: (vm: VM): MenuAction => ({ label: 'Start', run: () => void tell(`${vm.name} is started.`, api.POST('/v1/vms/{id}/start', path(vm))) }),
    pause: (vm: VM): MenuAction => ({ label: 'Pause', run: () => void tell(`${vm.name} is paused.`, api.POST('/v1/vms/{id}/pause', path(vm))) }),
    resume: (vm: VM): MenuAction => ({ label: 'Resume', run: () => void tell(`${vm.name} is running again.`, api.POST('/v1/vms/{id}/resume', path(vm))) }),
    stop: (vm: VM): MenuAction => ({ label: 'Stop…', run: () => setOpen({ what: 'stop', vm }) }),
    restart: (vm: VM): MenuAction => ({ label: 'Restart…', run: () => setOpen({ what: 'restart', vm }) }),
    reset: (vm: VM): MenuAction => ({ label: 'Reset…', danger: true, run: () => reset(vm) }),
    clone: (vm: VM): MenuAction => ({ label: 'Clone…', run: () => setOpen({ what: 'clone', vm }) }),
    delete: (vm: VM): MenuAction => ({ label: 'Delete…', danger: true, run: () => remove(vm) }),
  };
  const autostart = (vm: VM): MenuAction =>
    vm.autostart
      ? { label: 'Do not start with the host', run: () => void tell(`${vm.name} does not start with the host any more.`, api.POST('/v1/vms/{id}/disable', path(vm))) }
      : { label: 'Start with the host', run: () => void tell(`${vm.name} starts with the host from now on.`, api.POST('/v1/vms/{id}/enable', path(vm))) };
  const reset = (vm: VM) =>
    confirm({
      title: `Reset ${vm.name}?`,
      body: (
        <p>
          The guest of <b>{vm.name}</b> starts again at once, as with the reset button of a computer. What it has not written to its disk is lost. To let it shut down first, restart the VM.
        </p>
      ),
      action: 'Reset the VM',
      danger: true,
      run: async () => {
        await api.POST('/v1/vms/{id}/reset', path(vm));
        await refresh();
      },
      done: `The guest of ${vm.name} starts again.`,
    });
  const remove = (vm: VM) =>
    confirm({
      title: `Delete ${vm.name}?`,
      body: (
        <p>
          <b>{vm.name}</b> is stopped at once, and removed with its disks and snapshots. Its backups stay.
        </p>
      ),
      typed: vm.name,
      action: 'Delete the VM',
      danger: true,
      run: async () => {
        await api.DELETE('/v1/vms/{id}', path(vm));
        onDeleted();
        await refresh();
      },
      done: `${vm.name} is deleted.`,
    });

  const order = ['start', 'resume', 'pause', 'restart', 'stop', 'reset', 'clone'] as const;
  const many = (label: string, applies: Verb | ((vm: VM) => boolean), body: string, run: (vm: VM) => Promise<unknown>, danger = false): BulkAction<VM> => ({
    label,
    applies: typeof applies === 'string' ? (vm) => may(vm.state, applies) : applies,
    body,
    danger,
    run,
    after: refresh,
  });
  return {
    bulk: [
      many('Start', 'start', 'They are started one after the other, as the host has room for them.', (vm) => api.POST('/v1/vms/{id}/start', path(vm))),
      many('Resume', 'resume', 'They continue where they were paused.', (vm) => api.POST('/v1/vms/{id}/resume', path(vm))),
      many('Pause', 'pause', 'They keep their memory, and use no processor until they are resumed.', (vm) => api.POST('/v1/vms/{id}/pause', path(vm))),
      many('Restart', 'restart', 'Each guest is asked to shut down, and killed when its time of grace is over. Then it is started again.', (vm) => api.POST('/v1/vms/{id}/restart', path(vm))),
      many('Stop', 'stop', 'Each guest is asked to shut down, and killed when its time of grace is over.', (vm) => api.POST('/v1/vms/{id}/stop', path(vm))),
      many('Reset', resettable, 'The guests start again at once, without being asked. What they have not written to their disks is lost.', (vm) => api.POST('/v1/vms/{id}/reset', path(vm)), true),
      many('Start with the host', (vm) => !vm.autostart, 'They start whenever the host does.', (vm) => api.POST('/v1/vms/{id}/enable', path(vm))),
      many('Do not start with the host', (vm) => vm.autostart, 'They stay as they are now.', (vm) => api.POST('/v1/vms/{id}/disable', path(vm))),
      many('Delete', 'delete', 'They are stopped at once, and removed with their disks and snapshots. Their backups stay.', (vm) => api.DELETE('/v1/vms/{id}', path(vm)), true),
    ],
    first: (vm) => {
      const verb = order.find((v) => (v === 'start' || v === 'resume' || v === 'stop') && may(vm.state, v));
      return verb && verbs[verb](vm);
    },
    actions: (vm) => [
      ...order.filter((v) => (v === 'reset' ? resettable(vm) : may(vm.state, v))).map((v) => verbs[v](vm)),
      ...(vm.disk_gib > 0 && vm.state !== 'deleting' && vm.state !== 'creating' ? [{ label: 'Resize the disk…', run: () => setOpen({ what: 'resize', vm }) }] : []),
      ...(limitable(vm) && vm.state !== 'deleting' && vm.state !== 'creating' ? [{ label: 'Limit the network…', run: () => setOpen({ what: 'limit', vm }) }] : []),
      autostart(vm),
      ...(may(vm.state, 'delete') ? [verbs.delete(vm)] : []),
    ],
    dialog: open && <Asked open={open} onClose={close} tell={tell} refresh={refresh} />,
  };
}

function Asked({ open: { what, vm }, onClose, tell, refresh }: { open: Open; onClose: () => void; tell: (done: string, call: Promise<unknown>) => Promise<void>; refresh: () => Promise<unknown> }) {
  if (what === 'stop' || what === 'restart') {
    const restart = what === 'restart';
    return (
      <FormDialog<Stop>
        title={`${restart ? 'Restart' : 'Stop'} ${vm.name}`}
        schema={restart ? schemas.RestartVM : schemas.StopVM}
        fields={[
          { name: 'grace_seconds', label: 'Time of grace in seconds', hint: 'The guest is asked to shut down, and killed when this time is over' },
          { name: 'force', label: 'Kill it at once', hint: 'As if it lost its power: what the guest has not written yet is lost' },
        ]}
        action={restart ? 'Restart the VM' : 'Stop the VM'}
        onClose={onClose}
        onSubmit={(input) => {
          const request = { ...path(vm), body: input };
          void (restart ? tell(`${vm.name} has restarted.`, api.POST('/v1/vms/{id}/restart', request)) : tell(`${vm.name} is stopped.`, api.POST('/v1/vms/{id}/stop', request)));
          onClose();
          return Promise.resolve();
        }}
      />
    );
  }
  if (what === 'clone') {
    return (
      <FormDialog<{ name: string; linked?: boolean }>
        title={`Clone ${vm.name}`}
        schema={schemas.CloneVM}
        fields={[
          { name: 'name', label: 'Name of the new VM' },
          ...(atRest(vm.state) ? [{ name: 'linked', label: 'Share what neither changes', hint: 'Quick and small' }] : []),
        ]}
        values={{ name: `${vm.name}-copy`.slice(0, 63) }}
        action="Clone the VM"
        onClose={onClose}
        onSubmit={async (input) => {
          await api.POST('/v1/vms/{id}/clone', { ...path(vm), body: input });
          toast(`The clone ${input.name} is under way.`, 'info');
          onClose();
          await refresh();
        }}
      />
    );
  }
  if (what === 'limit') {
    return (
      <FormDialog<VMPatch>
        title={`Limit the network of ${vm.name}`}
        schema={schemas.PatchVM}
        fields={[
          { name: 'network_limits.receive_bits_per_second', label: 'Bits a second that the guest receives, at most', hint: '0: no limit' },
          { name: 'network_limits.send_bits_per_second', label: 'Bits a second that the guest sends, at most', hint: '0: no limit' },
        ]}
        values={{ network_limits: { receive_bits_per_second: 0, send_bits_per_second: 0, ...vm.network_limits } }}
        prepare={(input) => ({ ...input, network_limits: input.network_limits ?? {} })}
        preview={(input) => <p className="muted small">The guest {networkLimits(input.network_limits ?? {}) || 'receives and sends as much as the host can'}.</p>}
        action="Limit the network"
        onClose={onClose}
        onSubmit={async (input) => {
          await api.PATCH('/v1/vms/{id}', { ...path(vm), body: input });
          toast(`${vm.name} ${networkLimits(input.network_limits ?? {}) || 'has no network limits'}.`);
          onClose();
          await refresh();
        }}
      >
        <p className="muted small">It applies at once, also while the VM runs. Short bursts pass.</p>
      </FormDialog>
    );
  }
  return (
    <FormDialog<{ disk_gib: number }>
      title={`Resize the disk of ${vm.name}`}
      schema={schemas.ResizeVM}
      fields={[{ name: 'disk_gib', label: 'Size in GiB', hint: `It has ${vm.disk_gib} GiB, and can only grow. The guest’s file system does not grow by itself.` }]}
      values={{ disk_gib: vm.disk_gib }}
      action="Make it larger"
      onClose={onClose}
      onSubmit={async (input) => {
        await api.POST('/v1/vms/{id}/resize', { ...path(vm), body: input });
        toast(`The disk of ${vm.name} has ${input.disk_gib} GiB.`);
        onClose();
        await refresh();
      }}
    />
  );
}
