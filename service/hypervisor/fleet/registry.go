package fleet

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Defaults of Config.
const (
	DefaultInterval       = 10 * time.Second
	DefaultDeadline       = 3 * time.Second
	DefaultCreateDeadline = 2 * time.Minute
	DefaultPatience       = 5 * time.Second
	// MaxNodes is the maximum number of nodes in a fleet.
	MaxNodes = 1000
	// MaxVMs is the maximum number of VMs in a list.
	MaxVMs = 50_000
)

const (
	// A node is healthy while its last heartbeat is at most this many intervals old: three, plus
	// the tenth that jitter may add to each.
	healthyIntervals = 3.3
	// Lists skip a node that was silent for longer than this many intervals.
	goneIntervals = 30
	// doubt is how long a create of unknown outcome may still be in progress on its node.
	doubt = time.Minute
)

// Config holds the dependencies and settings of a Registry. Only DB is required.
type Config struct {
	DB    *db.DB // with the table nodes
	Token string // shown to the nodes; an admin's there
	Log   *slog.Logger
	Now   func() time.Time

	Interval       time.Duration // of heartbeats; 0: DefaultInterval
	Deadline       time.Duration // of lists over the fleet and of single reads; 0: DefaultDeadline
	CreateDeadline time.Duration // of what changes a VM; 0: DefaultCreateDeadline
	Patience       time.Duration // of creates that wait for room that is perhaps counted twice; 0: DefaultPatience

	CAFile string       // PEM certificates of further authorities that nodes are verified with
	HTTP   *http.Client // nil: one with sane limits; otherwise CAFile is not used
}

// Registry manages the nodes of a fleet. It is safe for concurrent use.
type Registry struct {
	cfg  Config
	http *http.Client
	// forwarding sends the requests of Routes.
	forwarding http.RoundTripper

	mu      sync.Mutex // held during transactions that change free capacity
	ledgers map[string]*ledger
	changed chan struct{} // closed and replaced when capacity may have become free
}

// New returns a Registry. It fails if the CA file cannot be read.
func New(cfg Config) (*Registry, error) {
	setDefault(&cfg.Interval, DefaultInterval)
	setDefault(&cfg.Deadline, DefaultDeadline)
	setDefault(&cfg.CreateDeadline, DefaultCreateDeadline)
	setDefault(&cfg.Patience, DefaultPatience)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	client, err := newHTTPClient(cfg.HTTP, cfg.CAFile)
	if err != nil {
		return nil, err
	}
	return &Registry{
		cfg: cfg, http: client, forwarding: newForwarding(client),
		ledgers: map[string]*ledger{}, changed: make(chan struct{}),
	}, nil
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d <= 0 {
		*d = to
	}
}

// Nodes lists all nodes by name.
func (r *Registry) Nodes(ctx context.Context) ([]hypervisorapi.Node, error) {
	rows, err := nodeRows(ctx, r.cfg.DB, "")
	if err != nil {
		return nil, err
	}
	nodes := make([]hypervisorapi.Node, len(rows))
	for i := range rows {
		nodes[i] = r.node(&rows[i])
	}
	return nodes, nil
}

// Node returns one node. It fails with NotFound if there is none.
func (r *Registry) Node(ctx context.Context, name string) (hypervisorapi.Node, error) {
	row, err := findNode(ctx, r.cfg.DB, name)
	return r.node(&row), noNode(err, name)
}

func noNode(err error, name string) error {
	if err = db.NotFound(err, "there is no node %.64q", name); fault.Is(err, fault.NotFound) {
		// Callers of Forward must tell this from an answer about what they asked for on the node.
		return fault.From(err).WithCode("node_not_found")
	}
	return err
}

// SetCordon excludes a node from the placement of new VMs, or includes it again. also, which may be
// nil, runs in the same transaction.
func (r *Registry) SetCordon(
	ctx context.Context, name string, on bool, also func(tx *db.Tx) error,
) (hypervisorapi.Node, error) {
	var row nodeRow
	err := r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := findNode(ctx, tx, name); err != nil {
			return noNode(err, name)
		}
		if err := tx.Get(ctx, &row, "UPDATE nodes SET cordoned = ? WHERE name = ? RETURNING *", on, name); err != nil {
			return noNode(err, name)
		}
		return run(also, tx)
	})
	if err == nil && !on {
		r.wake()
	}
	return r.node(&row), err
}

// Deregister removes a node. Its VMs keep running, and its next heartbeat registers it again,
// uncordoned. also, which may be nil, runs in the same transaction.
func (r *Registry) Deregister(ctx context.Context, name string, also func(tx *db.Tx) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := findNode(ctx, tx, name); err != nil {
			return noNode(err, name)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM nodes WHERE name = ?", name); err != nil {
			return err
		}
		return run(also, tx)
	})
	if err == nil {
		delete(r.ledgers, name)
	}
	return err
}

func run(also func(tx *db.Tx) error, tx *db.Tx) error {
	if also == nil {
		return nil
	}
	return also(tx)
}

// Capacity returns the sum of the healthy nodes' capacities.
func (r *Registry) Capacity(ctx context.Context) (hypervisorapi.Capacity, error) {
	rows, err := nodeRows(ctx, r.cfg.DB, "")
	sum := hypervisorapi.Capacity{Nodes: len(rows)}
	for i := range rows {
		n := &rows[i]
		if !r.healthy(n) {
			continue
		}
		sum.HealthyNodes++
		sum.Vcpus += n.VCPUs
		sum.MemoryMib += n.MemoryMiB
		sum.FreeVcpus += n.FreeVCPUs
		sum.FreeMemoryMib += n.FreeMemoryMiB
		sum.Vms += n.VMs
	}
	return sum, err
}

// silence returns the time since a node's last heartbeat.
func (r *Registry) silence(n *nodeRow) time.Duration { return r.cfg.Now().Sub(n.HeartbeatAt.Time) }

func (r *Registry) healthy(n *nodeRow) bool {
	return r.silence(n) <= time.Duration(healthyIntervals*float64(r.cfg.Interval))
}

func (r *Registry) node(n *nodeRow) hypervisorapi.Node {
	return hypervisorapi.Node{
		Name: n.Name, Url: n.URL, Version: n.Version, Labels: n.Labels.V, Backends: n.Backends.V,
		Healthy: r.healthy(n), Cordoned: n.Cordoned, HeartbeatAt: n.HeartbeatAt.Time,
		Vcpus: n.VCPUs, MemoryMib: n.MemoryMiB, FreeVcpus: n.FreeVCPUs, FreeMemoryMib: n.FreeMemoryMiB, Vms: n.VMs,
	}
}
