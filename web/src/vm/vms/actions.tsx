/** The actions on a VM, for its row and its page. */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import { useLocation } from 'wouter';
import type { BulkAction } from '../../ui/bulk';
import { body } from '../../ui/client';
import { useConfirm } from '../../ui/confirm';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { reason } from '../../ui/problem';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type CloneSpec, type StopOptions, type VM, type VMChange } from '../api';
import { at, vmPath } from '../links';
import { atRest, may, pendingText, type Verb } from '../states';
import { changedOf } from '../../ui/changed';

interface Open {
  what: 'stop' | 'clone' | 'change';
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

export function useVMActions(onDeleted: () => void = () => undefined): VMActions {
  const queries = useQueryClient();
  const confirm = useConfirm();
  const allowed = useMay();
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
  const operations = { start: 'StartVM', stop: 'StopVM', restart: 'RestartVM', pause: 'PauseVM', resume: 'ResumeVM', clone: 'CloneVM', delete: 'DeleteVM' } as const;
  const can = (vm: VM, verb: Verb) => may(vm, verb) && allowed(operations[verb]);
  const verbs: Record<Verb, (vm: VM) => MenuAction> = {
    start: (vm) => ({ label: 'Start', run: () => void tell(`${vm.name} starts.`, api.POST('/api/vms/{name}/start', at(vm))) }),
    pause: (vm) => ({ label: 'Pause', run: () => void tell(`${vm.name} is paused.`, api.POST('/api/vms/{name}/pause', at(vm))) }),
    resume: (vm) => ({ label: 'Resume', run: () => void tell(`${vm.name} is running again.`, api.POST('/api/vms/{name}/resume', at(vm))) }),
    restart: (vm) => ({ label: 'Restart…', run: () => restart(vm) }),
    stop: (vm) => ({ label: 'Stop…', run: () => setOpen({ what: 'stop', vm }) }),
    clone: (vm) => ({ label: 'Clone…', run: () => setOpen({ what: 'clone', vm }) }),
    delete: (vm) => ({ label: 'Delete…', danger: true, run: () => remove(vm) }),
  };
  const restart = (vm: VM) =>
    confirm({
      title: `Restart ${vm.name}?`,
      body: (
        <p>
          The guest of <b>{vm.name}</b> is asked to shut down, and starts again. Whoever uses it is cut off meanwhile.
        </p>
      ),
      action: 'Restart the VM',
      run: async () => {
        await api.POST('/api/vms/{name}/restart', at(vm));
        await refresh();
      },
      done: `${vm.name} has restarted.`,
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
        await api.DELETE('/api/vms/{name}', at(vm));
        onDeleted();
        await refresh();
      },
      done: `${vm.name} is deleted.`,
    });
  const flag = (vm: VM, change: VMChange, label: string, done: string): MenuAction => ({ label, run: () => void tell(done, api.PATCH('/api/vms/{name}', { ...at(vm), body: change })) });

  const order = ['start', 'resume', 'pause', 'restart', 'stop', 'clone'] as const;
  const many = (label: string, verb: Verb, text: string, run: (vm: VM) => Promise<unknown>, danger = false): BulkAction<VM>[] =>
    allowed(operations[verb]) ? [{ label, applies: (vm) => may(vm, verb), body: text, danger, run, after: refresh }] : [];
  return {
    bulk: [
      ...many('Start', 'start', 'Each starts in a job of its own, as the hosts have room for them.', (vm) => api.POST('/api/vms/{name}/start', at(vm))),
      ...many('Stop', 'stop', 'Each guest is asked to shut down, and switched off after 30 seconds.', (vm) => api.POST('/api/vms/{name}/stop', at(vm))),
      ...many('Delete', 'delete', 'They are stopped at once, and removed with their disks and snapshots. Their backups stay. Protected ones are left out.', (vm) => api.DELETE('/api/vms/{name}', at(vm)), true),
    ],
    first: (vm) => {
      const verb = order.find((v) => (v === 'start' || v === 'resume' || v === 'stop') && can(vm, v));
      return verb && verbs[verb](vm);
    },
    actions: (vm) => [
      ...order.filter((v) => can(vm, v)).map((v) => verbs[v](vm)),
      ...(allowed('UpdateVM')
        ? [
            { label: 'Change…', run: () => setOpen({ what: 'change', vm }) },
            vm.autostart
              ? flag(vm, { autostart: false }, 'Do not start with the host', `${vm.name} does not start with its host any more.`)
              : flag(vm, { autostart: true }, 'Start with the host', `${vm.name} starts with its host from now on.`),
            vm.protected
              ? flag(vm, { protected: false }, 'Allow deleting', `${vm.name} can be deleted now.`)
              : flag(vm, { protected: true }, 'Protect from deleting', `${vm.name} cannot be deleted from now on.`),
          ]
        : []),
      ...(can(vm, 'delete') ? [verbs.delete(vm)] : []),
    ],
    dialog: open && <Asked open={open} onClose={close} tell={tell} refresh={refresh} />,
  };
}

function Asked({ open: { what, vm }, onClose, tell, refresh }: { open: Open; onClose: () => void; tell: (done: string, call: Promise<unknown>) => Promise<void>; refresh: () => Promise<unknown> }) {
  const [, navigate] = useLocation();
  if (what === 'stop') {
    return (
      <FormDialog<StopOptions>
        title={`Stop ${vm.name}`}
        schema={schemas.StopVM}
        fields={[
          { name: 'grace_seconds', label: 'Time of grace in seconds', hint: 'The guest is asked to shut down, and switched off when this time is over' },
          { name: 'force', label: 'Switch it off at once', hint: 'As if it lost its power: what the guest has not written yet is lost' },
        ]}
        action="Stop the VM"
        onClose={onClose}
        onSubmit={(input) => {
          void tell(`${vm.name} is stopped.`, api.POST('/api/vms/{name}/stop', { ...at(vm), body: input }));
          onClose();
          return Promise.resolve();
        }}
      />
    );
  }
  if (what === 'clone') {
    return (
      <FormDialog<CloneSpec>
        title={`Clone ${vm.name}`}
        schema={schemas.CloneVM}
        fields={[
          { name: 'target_name', label: 'Name of the new VM' },
          ...(atRest(vm) ? [{ name: 'linked_clone', label: 'Share what neither changes', hint: 'Quick and small' }] : []),
        ]}
        values={{ target_name: `${vm.name}-copy`.slice(0, 63) }}
        action="Clone the VM"
        onClose={onClose}
        onSubmit={async (input) => {
          const made = await body(api.POST('/api/vms/{name}/clone', { ...at(vm), body: input }));
          onClose();
          await refresh();
          navigate(vmPath(made));
        }}
      />
    );
  }
  return (
    <FormDialog<VMChange>
      title={`Change ${vm.name}`}
      two
      wide
      schema={schemas.UpdateVM}
      fields={[
        { name: 'name', label: 'Name' },
        { name: 'description', label: 'Description', keepEmpty: true },
        { name: 'cpus', label: 'Processors' },
        { name: 'memory', label: 'Memory in MiB', hint: 'MiB' },
        { name: 'tags', label: 'Tags', keepEmpty: true, hint: 'One a line. Backup policies select VMs by them.' },
        { name: 'labels', label: 'Labels', keepEmpty: true, hint: 'Network policies select VMs by them.' },
      ]}
      values={vm}
      warning={(input) =>
        vm.state !== 'stopped' && (input.cpus !== vm.cpus || input.memory !== vm.memory) ? 'The VM is not stopped: processors and memory change with its next start.' : undefined
      }
      action="Save"
      onClose={onClose}
      onSubmit={async (input) => {
        const change = changedOf(vm, input);
        if (Object.keys(change).length === 0) throw new Error('Nothing is different from before.');
        const changed = await body(api.PATCH('/api/vms/{name}', { ...at(vm), body: change }));
        toast(`${changed.name} is changed${changed.pending.length ? `; ${pendingText(changed)} with its next start` : ''}.`);
        onClose();
        if (changed.name !== vm.name && location.pathname.startsWith('/vms/')) navigate(vmPath(changed), { replace: true });
        await refresh();
      }}
    />
  );
}
