package template

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Start is the first start of a VM that may use a template.
type Start struct {
	keeper *Keeper
	vm     *record.VM
	boot   func(context.Context, *backend.Spec) (backend.Instance, error)

	used *record.Template // nil: it booted
	why  string           // it booted; empty: there was no template
}

// Start returns the first start of a VM. boot starts it without a template.
func (k *Keeper) Start(
	r *record.VM, boot func(context.Context, *backend.Spec) (backend.Instance, error),
) *Start {
	return &Start{keeper: k, vm: r, boot: boot}
}

// Begin starts the VM's process: from a template if one fits and nothing is wrong with it, else by
// booting. The caller holds the VM's work lock.
func (s *Start) Begin(ctx context.Context, spec *backend.Spec) (backend.Instance, error) {
	k := s.keeper
	t, why, err := k.choose(ctx, s.vm, spec)
	if err != nil {
		return nil, err
	}
	if t != nil {
		instance, err := k.from(ctx, s.vm, spec, t)
		if err == nil {
			s.used = t
			return instance, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		why = "the template " + t.Name + " could not be used: "
		if f := fault.From(err); f.Kind != fault.Internal {
			why += f.Message
		} else {
			why += "the daemon's log tells more" // the error may name files of the host
		}
		k.broken.note(k.host, t, err)
		k.log.Warn("a VM boots, since a template could not be used", "vm", s.vm.ID, "template", t.Name, "error", err)
	}
	// Also what an earlier attempt left, with which the daemon was killed.
	if s.vm.DiskBase != "" {
		if err := k.standOnImage(ctx, s.vm); err != nil {
			return nil, err
		}
	}
	s.why = why
	return s.boot(ctx, spec)
}

// Outcome stores in a VM's row how it started, and returns that for its event.
func (s *Start) Outcome() (message string, change func(*record.VM)) {
	switch {
	case s.used != nil:
		message = "from the template " + s.used.Name
	case s.why != "":
		message = "booted: " + s.why
	}
	return message, func(r *record.VM) {
		r.Booted = s.why
		if s.used != nil {
			r.Template = s.used.Name
		}
	}
}

// choose returns the template that a VM starts from, or nil and why there is none.
func (k *Keeper) choose(ctx context.Context, r *record.VM, spec *backend.Spec) (*record.Template, string, error) {
	var candidates []record.Template
	var err error
	if r.Instant == record.InstantAny {
		if candidates, err = k.store.TemplatesOf(ctx, r.Base); err != nil || len(candidates) == 0 {
			return nil, "", err
		}
	} else {
		t, err := k.store.TemplateByID(ctx, r.Instant)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil, "the template that was asked for is deleted", nil
		case err != nil:
			return nil, "", err
		case t.Content != r.Base:
			return nil, "the template " + t.Name + " is of another image, or of what the image was before", nil
		}
		candidates = []record.Template{t}
	}
	w, why, err := k.wanted(ctx, r, spec)
	if err != nil || why != "" {
		return nil, why, err
	}
	var passed []string
	for i := range candidates {
		t := &candidates[i]
		if why := k.broken.why(k.host, t); why != "" {
			passed = append(passed, "the template "+t.Name+" could not be used: "+why)
			continue
		}
		if why := mismatch(t, w); why != "" {
			passed = append(passed, "the template "+t.Name+" does not fit: "+why)
			continue
		}
		return t, "", nil
	}
	return nil, strings.Join(passed, "; "), nil
}

// wanted returns what a VM needs of a template, or why no template will do.
func (k *Keeper) wanted(ctx context.Context, r *record.VM, spec *backend.Spec) (*wanted, string, error) {
	b, err := k.templater(r.Backend)
	if err != nil {
		return nil, fault.From(err).Message, nil
	}
	v := &r.Spec.V
	switch {
	case !v.Agent:
		return nil, "without an agent the guest gets no identity of its own", nil
	case v.CloudInit.UserData != "" || len(v.CloudInit.SSHAuthorizedKeys) > 0:
		return nil, "user data and SSH keys of cloud_init are applied by a boot", nil
	case r.HasDisk() && v.Storage != storage.Dir:
		return nil, "only disks on the storage dir can stand on a template's", nil
	}
	traits, err := b.Traits(ctx, spec)
	if refused := fault.From(err); err != nil && refused.Kind == fault.Conflict {
		return nil, refused.Message, nil
	}
	if err != nil {
		return nil, "", err
	}
	agent, err := k.agentOf(r)
	return &wanted{
		VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB, Network: len(spec.NICs) > 0, Disk: r.HasDisk(),
		DiskBytes: int64(v.DiskGiB) * record.GiB, Agent: agent, Traits: record.Traits(traits),
	}, "", err
}

// agentOf returns the SHA-256 of the guest agent that a VM gets from this host, or "" if its image has
// its own.
func (k *Keeper) agentOf(r *record.VM) (string, error) {
	path := k.host.AgentProgram()
	if r.Spec.V.Boot.Kernel != "" || path == "" {
		return "", nil
	}
	f, err := os.Open(path) //nolint:gosec // the operator's choice
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// personalLimit is the timeout for a guest that was loaded to take an identity of its own. A boot would
// take longer.
const personalLimit = time.Minute

// from starts a VM from a template. If it fails, no process is left.
func (k *Keeper) from(
	ctx context.Context, r *record.VM, spec *backend.Spec, t *record.Template,
) (_ backend.Instance, err error) {
	b, err := k.templater(r.Backend)
	if err != nil {
		return nil, err
	}
	memory, err := k.host.TemplateMemory(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }() // it was only read
	state, err := k.host.TemplateState(t)
	if err != nil {
		return nil, err
	}
	defer func() { _ = state.Close() }() // it was only read
	if r.HasDisk() {
		if err := k.host.StandOn(ctx, r, t); err != nil {
			return nil, err
		}
	}
	instance, err := b.StartFromTemplate(ctx, spec, memory, state)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, instance.Kill(context.WithoutCancel(ctx)))
			<-instance.Done()
			_ = instance.Close() // it has ended
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, personalLimit, errors.New("its guest does not answer"))
	defer cancel()
	if err := k.personalize(ctx, r, instance, t); err != nil {
		return nil, err
	}
	return instance, instance.Connect(ctx)
}

// personalize lets a guest that was loaded run, and makes it the VM's. The agent's channel is connected
// before that: the agent is as it was saved, with a host.
func (k *Keeper) personalize(
	ctx context.Context, r *record.VM, instance backend.Instance, t *record.Template,
) error {
	old, err := k.store.TemplateSecret(t)
	if err != nil {
		return err
	}
	secrets, err := k.store.Secrets(ctx, r.ID)
	if err != nil {
		return err
	}
	stream, err := instance.Dial(ctx, backend.AgentChannel)
	if err != nil {
		return err
	}
	if err := instance.Resume(ctx); err != nil {
		return errors.Join(err, stream.Close())
	}
	client, err := guest.Connect(ctx, stream, old)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the session of the VM's life follows
	seed := make([]byte, 64)
	_, _ = rand.Read(seed) // it never fails
	p := wire.Personalize{
		Secret: secrets[0], Seed: seed, TimeNS: k.now().UnixNano(), Hostname: host.Hostname(r),
		MachineID: strings.ReplaceAll(r.ID, "-", ""),
	}
	if t.MAC != "" {
		p.MACs = map[string]string{t.MAC: r.MAC}
	}
	if _, err := client.Personalize(ctx, p); err != nil {
		return err
	}
	return client.Ping(ctx) // with the new secret
}

// standOnImage makes the disk of a VM that has not come up yet anew from its image.
func (k *Keeper) standOnImage(ctx context.Context, r *record.VM) error {
	content, err := k.catalog.Content(r.Base)
	if err != nil {
		return err
	}
	var base *storage.Base
	if content.Kind == catalog.Disk {
		base = &storage.Base{Path: content.DiskPath(), Format: "qcow2", Size: content.VirtualSize}
	}
	return k.host.StandOnImage(ctx, r, base)
}
