// Package life takes VMs through their states: it makes, starts, pauses, stops and deletes them, and
// draws the conclusion when they end by themselves.
//
//	create.go   from an admitted row to a VM that is stopped
//	start.go    the process of a VM, and following it
//	stop.go     asking a guest to shut down, and killing
//	pause.go    halting processors, and what the backend says of that
//	halt.go     VMs that their backend halts of its own accord
//	delete.go   the end, and undoing what could not be made
//	expire.go   VMs whose time is over
//	wait.go     waiting for a state; what a VM uses
//
// # Invariants
//
//   - A move is stored first, and done on the host after that: a daemon that is killed knows what
//     it was about (package recovery).
//   - Nothing is started twice, and no VM is left in a state that is under way but by the end of
//     the daemon.
//   - Undo and Delete share one clean-up, Erase, which can be repeated.
//   - Only deleting kills processes without the machine's work lock.
//
// It imports record, machine, host, plan, agent, operation, and the packages that those stand on.
package life

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/service/hypervisor/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config is what a Life stands on.
type Config struct {
	Store      *record.Store
	Machines   *machine.Set
	Host       *host.Host
	Plan       *plan.Planner
	Agent      *agent.Keeper
	Operations *operation.Runner
	Registry   *prometheus.Registry
	Log        *slog.Logger
	Now        func() time.Time
	// RoomChanged is called when the host has more room than before.
	RoomChanged func()
}

// Life takes the VMs of this host through their states.
type Life struct {
	store       *record.Store
	machines    *machine.Set
	host        *host.Host
	plan        *plan.Planner
	agent       *agent.Keeper
	operate     *operation.Runner
	log         *slog.Logger
	now         func() time.Time
	roomChanged func()
	timed       chan struct{}            // holds one: a VM with a time to live was made
	starts      *prometheus.HistogramVec // seconds from the request to processors that run
}

// New makes a Life.
func New(c Config) *Life {
	l := &Life{
		store: c.Store, machines: c.Machines, host: c.Host, plan: c.Plan, agent: c.Agent, operate: c.Operations,
		log: c.Log, now: c.Now, roomChanged: c.RoomChanged, timed: make(chan struct{}, 1),
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hypervisor_vm_start_seconds", Help: "From a start to processors that run, by backend and result.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
		}, []string{"backend", "result"}),
	}
	c.Registry.MustRegister(l.starts)
	return l
}
