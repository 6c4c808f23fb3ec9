// Package migrate moves VMs between the hosts of a fleet. A VM moves while it is stopped, with its disks, its
// snapshots and its identity. Hosts talk to each other directly, with the fleet's token.
//
//	send.go      the host that a VM leaves: the operation, and what follows a hand-over
//	copy.go      writes a VM's files to the other host
//	offer.go     what is offered: the VM and the list of its files
//	receive.go   the host that a VM comes to: offers, prepared VMs, commits and aborts
//	arrival.go   the files of an offer while they are written
//
// # Protocol
//
//	here                                there
//	offer                           ──► row in state creating, arrival receiving, empty files
//	files, piece by piece           ──► written
//	prepare, with a sum of each     ──► compared, inspected, made durable; arrival prepared
//	VM is stored as handed over
//	commit                          ──► VM stopped, or starting; arrival committed
//	VM is erased
//
// # Invariants
//
//   - There is exactly one VM that can start. Until a VM is stored as handed over, it is this host's, and the
//     other host aborts what it has. From then on, nothing but the other host's answer decides: committed means
//     that this host erases its VM, aborted or unknown means that it keeps it.
//   - Commits and aborts are final, and are remembered, so that a question that is repeated gets the same answer.
//     A prepared arrival waits for ever: only the host that it comes from, or an admin, ends it.
//   - Either host may be killed at any moment. The operation is repeated from its start with a new migration,
//     unless the VM was handed over: then its commit is repeated. An arrival whose files are not complete does
//     not survive a restart.
//   - Nobody else uses the VM meanwhile: here the operation holds its work lock, and a VM that was handed over
//     is refused by record; there it cannot be used in state creating, is not listed, and cannot be deleted.
//   - What the other host sends is checked: the VM like a new one, and each layer of the disk like an image. No
//     path of the other host is used. A layer is never put into the catalog, where other VMs would find it.
//
// It imports fleet, life, plan, and the packages below those.
package migrate

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store      *record.Store
	Machines   *machine.Set
	Host       *host.Host
	Life       *life.Life
	Plan       *plan.Planner
	Catalog    *catalog.Catalog
	Operations *operation.Runner
	Peers      *fleet.Peers // nil: this host is in no fleet
	Log        *slog.Logger
	Now        func() time.Time
}

// Manager moves VMs to and from this host.
type Manager struct {
	store    *record.Store
	machines *machine.Set
	host     *host.Host
	life     *life.Life
	plan     *plan.Planner
	catalog  *catalog.Catalog
	operate  *operation.Runner
	peers    *fleet.Peers
	log      *slog.Logger
	now      func() time.Time

	mu       sync.Mutex
	arriving map[string]*arrival // by migration
}

// New returns a Manager and registers its operation.
func New(c Config) *Manager {
	m := &Manager{
		store: c.Store, machines: c.Machines, host: c.Host, life: c.Life, plan: c.Plan, catalog: c.Catalog,
		operate: c.Operations, peers: c.Peers, log: c.Log, now: c.Now, arriving: map[string]*arrival{},
	}
	operation.Register(m.operate, record.OperationMigrate, operation.Kind[sendArgs]{
		Run: func(ctx context.Context, a sendArgs, progress func(float64)) error {
			return m.send(shell.As(ctx, a.Actor), a, progress)
		},
	})
	return m
}

const (
	// silence is how long an arrival waits for the next piece of a file.
	silence = 15 * time.Minute
	// memory is how long the end of a migration is remembered: longer than a host that has not heard of it is
	// likely to be away. Those of VMs that are here are remembered longer.
	memory = 365 * 24 * time.Hour
)

// Run ends arrivals that were given up, and asks other hosts about VMs that were handed over to them, until ctx
// ends.
func (m *Manager) Run(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	jobs.Every(ctx, jobs.Periodic{Name: "migrations", Interval: time.Minute, Log: m.log, Run: func(ctx context.Context) error {
		m.dropSilent(ctx)
		m.settleHandedOver(ctx)
		return m.store.ForgetArrivals(ctx, m.now().Add(-memory))
	}})
}
