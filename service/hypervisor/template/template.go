// Package template makes templates, which are VMs with their memory as they were when their agents
// were ready, and starts other VMs from them in a fraction of the time of a boot.
//
//	template.go   the Keeper: creates, checks and deletes templates
//	make.go       the operation that makes one, of a VM that boots for that
//	match.go      whether a VM can start from a template, and if not, why
//	start.go      the first start of a VM: from a template, else by booting
//
// A template is made of an image of the catalog, with nothing of any tenant in it. Its files are its
// memory, the state of its devices, and its disk if it has one (package host). VMs map the memory
// privately, and their disks stand on the template's.
//
// # Invariants
//
//   - A template's row exists only with its files complete. Files without a row are swept.
//   - A VM uses a template only for its first start, and only if nothing was done to its disk. Until
//     the VM came up, its disk can be made anew from the image.
//   - Before the network of a VM is connected and its agent counts as connected, its guest has its own
//     secret, random numbers, clock, names, keys and addresses. Otherwise it is killed, and boots.
//   - No process of a VM can change what other VMs start from.
//
// It imports record, machine, catalog, host, plan, operation, guest, backend and storage.
package template

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config holds the dependencies of a Keeper.
type Config struct {
	Store      *record.Store
	Machines   *machine.Set
	Host       *host.Host
	Plan       *plan.Planner
	Catalog    *catalog.Catalog
	Operations *operation.Runner
	Log        *slog.Logger
	Now        func() time.Time
	// Most is how many templates there may be.
	Most int
	// Undo removes a VM in state creating and everything that it has on the host.
	Undo func(ctx context.Context, r record.VM, why string) error
}

// Keeper keeps the templates of this host.
type Keeper struct {
	store    *record.Store
	machines *machine.Set
	host     *host.Host
	plan     *plan.Planner
	catalog  *catalog.Catalog
	operate  *operation.Runner
	log      *slog.Logger
	now      func() time.Time
	most     int
	undo     func(ctx context.Context, r record.VM, why string) error
	broken   broken
}

// New returns a Keeper and registers the operation that makes templates.
func New(c Config) *Keeper {
	k := &Keeper{
		store: c.Store, machines: c.Machines, host: c.Host, plan: c.Plan, catalog: c.Catalog, operate: c.Operations,
		log: c.Log, now: c.Now, most: c.Most, undo: c.Undo,
	}
	operation.Register(k.operate, record.OperationTemplate, operation.Kind[making]{
		Run: func(ctx context.Context, a making, progress func(float64)) error {
			return k.make(shell.As(ctx, a.Actor), a, progress)
		},
	})
	return k
}

// Request is a request for a template.
type Request struct {
	Name      string // empty: made of the others
	Image     string // of the catalog
	VCPUs     int
	MemoryMiB int
	Network   bool // for VMs with a network device
}

// making are the arguments of the job that makes a template.
type making struct {
	ID string
	Request
	Actor caller.Caller
}

// Create starts an operation that makes a template.
func (k *Keeper) Create(ctx context.Context, req Request) (record.Operation, error) {
	if strings.Contains(req.Image, "/") {
		return record.Operation{}, fault.InvalidField("image", "must be the name of an image in the catalog")
	}
	i, err := k.store.Image(ctx, req.Image)
	if fault.Is(err, fault.NotFound) {
		return record.Operation{}, fault.InvalidField("image", "there is no image %q in the catalog", req.Image)
	}
	if err != nil {
		return record.Operation{}, err
	}
	if i.Kind == string(catalog.RootFS) {
		return record.Operation{}, fault.InvalidField("image", "is a root file system; sandboxes have no templates")
	}
	if req.Name == "" {
		req.Name = usualName(&req)
	}
	if err := k.store.CheckTemplate(ctx, req.Name, k.most); err != nil {
		return record.Operation{}, err
	}
	op := record.NewOperation(record.OperationTemplate, "")
	op.Image = req.Image
	return k.operate.Begin(
		ctx, op, making{ID: record.NewID(), Request: req, Actor: caller.From(ctx)},
		audit.Entry{Action: "template.create", Target: req.Name, Message: "of the image " + req.Image},
	)
}

// usualName returns a name such as demo-1x512, or demo-1x512-no-network.
func usualName(req *Request) string {
	name := fmt.Sprintf("%s-%dx%d", req.Image, req.VCPUs, req.MemoryMiB)
	if !req.Network {
		name += "-no-network"
	}
	return name
}

// Delete removes a template. VMs that started from it keep running.
func (k *Keeper) Delete(ctx context.Context, name string) error {
	t, err := k.store.RemoveTemplate(ctx, name)
	if err != nil {
		return err
	}
	k.broken.forget(t.ID)
	// Without its row nobody uses it, and what is left is swept at the next start.
	return errors.Join(k.host.RemoveTemplate(t.ID), k.host.SweepBases(ctx))
}

// Sweep removes the files of templates that were not finished or not removed when the daemon ended.
func (k *Keeper) Sweep(ctx context.Context) error {
	ids, err := k.store.TemplateIDs(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	return k.host.SweepTemplates(ctx, func(id string) bool { return known[id] })
}

// Stale returns why no VM can start from a template any more, or "".
func (k *Keeper) Stale(ctx context.Context, t *record.Template) (string, error) {
	has, err := k.store.HasImageOf(ctx, t.Content)
	if err != nil {
		return "", err
	}
	if !has {
		return "no image of the catalog has its content any more", nil
	}
	if why := k.broken.why(k.host, t); why != "" {
		return why + "; delete it and make another one", nil
	}
	b, err := k.templater(backend.QEMU)
	if err != nil {
		return fault.From(err).Message, nil
	}
	now, err := b.Traits(ctx, &backend.Spec{Kernel: "kernel", VCPUs: 1, MemoryMiB: 1})
	if err != nil {
		return fault.From(err).Message, nil
	}
	was := t.Traits.V
	now.Machine, now.Shape = was.Machine, was.Shape // these are each VM's
	return differentTraits(&was, record.Traits(now)), nil
}

func (k *Keeper) templater(name string) (backend.Templater, error) {
	b, ok := k.host.Backends()[name].(backend.Templater)
	if !ok {
		return nil, fault.New(fault.Unavailable, "the backend %s has no templates", name)
	}
	return b, nil
}
