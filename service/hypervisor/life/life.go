// Package life moves VMs through their states: it creates, starts, pauses, stops and deletes them,
// and handles VMs that end on their own.
//
//	create.go   from an admitted row to a stopped VM
//	start.go    starts a VM's process and follows it
//	serve.go    the stream to a disk that a client serves
//	stop.go     asks a guest to shut down; kills processes
//	pause.go    pauses and resumes processors; agrees with what the backend reports
//	halt.go     VMs that their backend halts on its own
//	delete.go   deletes VMs and undoes failed creations
//	expire.go   deletes expired VMs
//	wait.go     waits for a state; reports a VM's resource usage and serial log
//
// # Invariants
//
//   - A move is stored first and carried out on the host afterwards, so a daemon that was killed
//     knows what it was doing (package recovery).
//   - Nothing is started twice. A VM stays in a transitional state only if the daemon ends.
//   - Undo and Delete share one idempotent clean-up, Erase.
//   - Only deletion kills processes without the machine's work lock.
//
// It imports record, machine, host, plan, agent, operation, and the packages below those.
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
	"github.com/mainstay-infra/mainstay/service/hypervisor/template"
)

// Config holds the dependencies of a Life.
type Config struct {
	Store      *record.Store
	Machines   *machine.Set
	Host       *host.Host
	Plan       *plan.Planner
	Agent      *agent.Keeper
	Operations *operation.Runner
	Templates  *template.Keeper
	Registry   *prometheus.Registry
	Log        *slog.Logger
	Now        func() time.Time
	// RoomChanged is called when the host has more free capacity than before.
	RoomChanged func()
}

// Life moves the VMs of this host through their states.
type Life struct {
	store       *record.Store
	machines    *machine.Set
	host        *host.Host
	plan        *plan.Planner
	agent       *agent.Keeper
	operate     *operation.Runner
	templates   *template.Keeper
	log         *slog.Logger
	now         func() time.Time
	roomChanged func()
	timed       chan struct{}            // capacity 1: a VM with a time to live was created
	starts      *prometheus.HistogramVec // seconds from the request to running processors
}

// New returns a Life and registers its metrics.
func New(c Config) *Life {
	l := &Life{
		store: c.Store, machines: c.Machines, host: c.Host, plan: c.Plan, agent: c.Agent, operate: c.Operations,
		templates: c.Templates,
		log:       c.Log, now: c.Now, roomChanged: c.RoomChanged, timed: make(chan struct{}, 1),
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hypervisor_vm_start_seconds", Help: "From a start to processors that run, by backend and result.",
			Buckets: []float64{.05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
		}, []string{"backend", "result"}),
	}
	c.Registry.MustRegister(l.starts)
	return l
}
