package template

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// The progress of the operation: it is between the first two while the guest boots.
const (
	madeVM   = 0.05
	booted   = 0.7
	saved    = 0.8
	complete = 0.95
)

// make is the job that makes a template: a VM boots for that, stays in state creating, so that nobody
// gets into it, and is removed at the end. If the job is repeated, the next start of the daemon has
// removed what the first attempt left.
func (k *Keeper) make(ctx context.Context, a making, progress func(float64)) error {
	if _, err := k.store.TemplateByID(ctx, a.ID); err == nil {
		return nil // the daemon was killed after that
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	network := record.NetworkNone
	if a.Network {
		network = record.NetworkUser
	}
	req := plan.Request{
		Name: "template-" + a.ID[len(a.ID)-12:], Backend: backend.QEMU,
		Spec: record.Spec{
			Image: a.Image, VCPUs: a.VCPUs, MemoryMiB: a.MemoryMiB, Storage: storage.Dir, Agent: true,
			Network: record.Network{Mode: network},
		},
	}
	sources, err := k.plan.Prepare(ctx, &req)
	if err != nil {
		return err
	}
	defer sources.Release()
	r, err := k.plan.Admit(ctx, &req, sources, "vm.create")
	if err != nil {
		return err
	}
	progress(madeVM)
	// Whatever happens, the VM is removed.
	err = k.machines.With(
		context.WithoutCancel(ctx), r.ID, creating,
		func(bare context.Context, m *machine.Machine, r record.VM) error {
			made, done := m.Breakable(ctx) // the deletion of the VM ends it, too
			defer done()
			err := k.record(made, a, r, sources, req.Secret, progress)
			why := "the template " + a.Name + " is made"
			if err != nil {
				why = "the template " + a.Name + " was not made: " + fault.From(err).Message
			}
			undoErr := k.undo(bare, r, why)
			if fault.Is(undoErr, fault.Conflict) {
				undoErr = nil // somebody deletes it
			}
			return errors.Join(err, undoErr)
		},
	)
	if err != nil && !operation.BrokenOff(ctx) {
		if _, gone := k.store.TemplateByID(context.WithoutCancel(ctx), a.ID); gone != nil {
			return errors.Join(err, k.host.DropTemplate(context.WithoutCancel(ctx), a.ID))
		}
	}
	return err
}

func creating(_ context.Context, r *record.VM) error {
	if r.State != vm.Creating {
		return fault.New(fault.Conflict, "the VM for the template is %s", r.State)
	}
	return nil
}

// record boots a VM, saves it, and stores the template.
func (k *Keeper) record(
	ctx context.Context, a making, r record.VM, sources *plan.Sources, secret string, progress func(float64),
) error {
	b, err := k.templater(r.Backend)
	if err != nil {
		return err
	}
	parts := sources.Parts(secret)
	if err := k.host.Make(ctx, &r, parts); err != nil {
		return err
	}
	traits, err := b.Traits(ctx, k.host.Spec(&r))
	if err != nil {
		return err
	}
	agent, err := k.agentOf(&r)
	if err != nil {
		return err
	}
	if err := k.host.MakeTemplateFolder(a.ID); err != nil {
		return err
	}
	version, err := k.save(ctx, a, &r, b, secret, progress)
	if err != nil {
		return err
	}
	progress(saved)
	backing := ""
	if parts.Disk != nil {
		backing = parts.Disk.Path
	}
	t, err := k.host.TakeTemplate(ctx, &r, a.ID, backing)
	if err != nil {
		return err
	}
	progress(complete)
	t.ID, t.Name, t.Image, t.Content, t.VCPUs, t.MemoryMiB = a.ID, a.Name, a.Image, r.Base, r.VCPUs, r.MemoryMiB
	t.Network, t.MAC, t.AgentVersion, t.AgentProgram = a.Network, r.MAC, version, agent
	t.Traits.V = record.Traits(traits)
	t.Secret = k.store.Seal(t.ID, secret)
	return k.store.AddTemplate(ctx, &t, k.most)
}

// bootLimit is how long a guest may take until it is ready to become a template.
const bootLimit = 15 * time.Minute

// save boots a VM and saves its state. When it returns, the process has ended. It returns the version
// of the guest's agent.
func (k *Keeper) save(
	ctx context.Context, a making, r *record.VM, b backend.Templater, secret string, progress func(float64),
) (version string, err error) {
	memory, err := k.host.MakeMemoryFile(r)
	if err != nil {
		return "", err
	}
	spec, err := k.host.Equip(ctx, r)
	if err != nil {
		return "", err
	}
	defer spec.Release()
	source, err := b.StartForTemplate(ctx, spec, memory)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, source.Kill(context.WithoutCancel(ctx)))
		<-source.Done()
		_ = source.Close() // it has ended
	}()
	if err := k.host.Confine(ctx, r, source); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fault.New(
		fault.Timeout, "the guest was not ready within %s; a template takes an image with the guest agent, and more "+
			"memory if the guest ran out of its %d MiB", bootLimit, r.MemoryMiB,
	))
	defer cancel()
	ready := make(chan struct{})
	defer close(ready)
	routine.Go(k.log, "progress of a template", func() { report(ready, progress) })
	client, err := await(ctx, source, secret)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	if !slices.Contains(client.Capabilities(), wire.OpPersonalize) {
		return "", fault.New(fault.Conflict,
			"the guest agent of the image (version %s) cannot give a guest another identity", client.Version())
	}
	if err := settled(ctx, client, k.log); err != nil {
		return "", err
	}
	progress(booted)
	state, err := k.host.CreateTemplateState(a.ID)
	if err != nil {
		return "", err
	}
	// The session stays open meanwhile: guests of the template go on with an agent that reads.
	return client.Version(), errors.Join(source.SaveState(ctx, state), state.Close())
}

// report tells the progress of a boot, and so notices that the operation was cancelled.
func report(ready <-chan struct{}, progress func(float64)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for at := madeVM; ; at += (booted - at) / 20 {
		progress(at)
		select {
		case <-tick.C:
		case <-ready:
			return
		}
	}
}

// attempt is the timeout of one attempt to reach an agent: a guest that restarts loses what was sent.
const attempt = 20 * time.Second

// await waits for the agent of a guest that boots.
func await(ctx context.Context, instance backend.Instance, secret string) (*guest.Client, error) {
	observer, ok := instance.(backend.Observer)
	if !ok {
		return nil, fmt.Errorf("the backend does not tell whether the agent is there")
	}
	for {
		condition, changed := observer.Condition()
		if condition.AgentOpen {
			if client, err := meet(ctx, instance, secret); err == nil {
				return client, nil
			}
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // an agent that did not answer is asked again
		case <-instance.Done():
			return nil, fault.New(fault.Conflict, "the VM for the template ended: %s", instance.Ended().Reason)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// meet connects to an agent that is there.
func meet(ctx context.Context, instance backend.Instance, secret string) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	stream, err := instance.Dial(ctx, backend.AgentChannel)
	if err != nil {
		return nil, err
	}
	client, err := guest.Connect(ctx, stream, secret)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		_ = client.Close() // another attempt connects anew
		return nil, err
	}
	return client, nil
}

// settled waits until a guest has finished what it does at boot, where that can be asked: with
// cloud-init the agent is there before anything else.
func settled(ctx context.Context, client *guest.Client, log *slog.Logger) error {
	const script = `if command -v cloud-init >/dev/null 2>&1; then cloud-init status --wait >/dev/null 2>&1; fi
if [ -d /run/systemd/system ]; then systemctl is-system-running --wait >/dev/null 2>&1; fi
sync`
	exit, err := client.Exec(ctx, guest.Command{Argv: []string{"/bin/sh", "-c", script}, Timeout: bootLimit})
	if refusal := (*guest.Refusal)(nil); errors.As(err, &refusal) {
		log.Info("a guest without a shell becomes a template", "reason", refusal.Message)
		return nil
	}
	if err == nil && exit.TimedOut {
		err = fault.New(fault.Timeout, "the guest did not finish its boot within %s", bootLimit)
	}
	return err
}
