package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	jitter = 0.1 // of the interval, to both sides
	// gap is the minimum time between two heartbeats that Nudge requested.
	gap = time.Second
	// beatTimeout is the timeout for a heartbeat, including reading the numbers.
	beatTimeout = 10 * time.Second
	// A failed heartbeat is retried after this fraction of the interval, then with a doubled delay
	// each time, up to the interval.
	firstRetry    = 8
	maxBeatAnswer = 64 << 10 // bytes
)

// ReporterConfig configures a Reporter. Registry, Name and Report are required.
type ReporterConfig struct {
	Registry string // URL of the registry
	Name     string // of this node
	Token    string // the fleet's
	// Report returns the node's current state. VMs that are being created count from before the
	// response to their create.
	Report func(ctx context.Context) (hypervisorapi.Heartbeat, error)

	Interval time.Duration  // 0: DefaultInterval
	CAFile   string         // PEM certificates of further authorities that the registry is verified with
	HTTP     *http.Client   // nil: one with sane limits; otherwise CAFile is not used
	Rand     func() float64 // in [0, 1), for jitter; nil: that of math/rand
	Log      *slog.Logger
}

// Reporter sends a node's heartbeats to the registry.
type Reporter struct {
	cfg   ReporterConfig
	api   *hypervisorapi.Client
	nudge chan struct{}

	// Run's own.
	after    int64 // what the last heartbeat was answered with
	failures int   // since the last that was taken in
	reached  bool  // once
}

// NewReporter returns a Reporter. Faults name the wrong setting: registry, name or ca_file.
func NewReporter(cfg ReporterConfig) (*Reporter, error) {
	if err := checkURL("registry", cfg.Registry); err != nil {
		return nil, err
	}
	if !nodeName.MatchString(cfg.Name) {
		return nil, fault.InvalidField(
			"name",
			"a node's name is 1 to 63 letters, digits, dots, dashes and underscores, and begins and ends with a letter or digit",
		)
	}
	setDefault(&cfg.Interval, DefaultInterval)
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	client, err := newHTTPClient(cfg.HTTP, cfg.CAFile)
	if err != nil {
		return nil, err
	}
	api, err := hypervisorapi.NewClient(strings.TrimRight(cfg.Registry, "/")+hypervisorapi.BasePath,
		rest.WithHTTPClient(client), rest.WithEditor(authorize(cfg.Token)))
	return &Reporter{cfg: cfg, api: api, nudge: make(chan struct{}, 1)}, err
}

// Nudge requests a heartbeat soon because the node's free capacity changed. It does not block.
func (r *Reporter) Nudge() {
	select {
	case r.nudge <- struct{}{}:
	default: // there is one already
	}
}

// Run sends heartbeats until ctx ends: one immediately, then one per interval. The node stays
// registered after that, since its VMs keep running.
func (r *Reporter) Run(ctx context.Context) {
	// The registry drops a reservation with the second heartbeat after a create. Therefore the
	// first heartbeat, and one that was requested, is soon followed by another.
	again := true
	for {
		err := r.beat(ctx)
		if ctx.Err() != nil {
			return
		}
		r.tell(err)
		running, nudged := r.pause(ctx, again && err == nil)
		if !running {
			return
		}
		again = nudged || again && err != nil
	}
}

// pause waits until the next heartbeat is due. It reports whether to continue, and whether the
// heartbeat was requested by Nudge.
func (r *Reporter) pause(ctx context.Context, soon bool) (running, nudged bool) {
	nudge, wait := r.nudge, r.wait()
	switch {
	case r.failures > 0:
		nudge = nil // more would not help
	case soon:
		wait = min(gap, wait)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	beaten := time.Now()
	select {
	case <-timer.C:
		return true, false
	case <-ctx.Done():
		return false, false
	case <-nudge:
	}
	timer.Reset(max(0, gap-time.Since(beaten)))
	select {
	case <-timer.C:
		return true, true
	case <-ctx.Done():
		return false, false
	}
}

// wait returns the time until the next regular heartbeat.
func (r *Reporter) wait() time.Duration {
	spread := 1 + jitter*(2*r.cfg.Rand()-1)
	wait := r.cfg.Interval
	if r.failures > 0 {
		wait = min(wait, wait/firstRetry<<min(r.failures-1, 10))
	}
	return time.Duration(float64(wait) * spread)
}

// tell logs when heartbeats start to fail or to succeed.
func (r *Reporter) tell(err error) {
	switch {
	case err != nil:
		if r.failures++; r.failures == 1 {
			r.cfg.Log.Warn(
				"heartbeats do not reach the registry", "registry", r.cfg.Registry, "node", r.cfg.Name, "error", err,
			)
		}
	case r.failures > 0 || !r.reached:
		r.failures, r.reached = 0, true
		r.cfg.Log.Info(
			"heartbeats reach the registry", "registry", r.cfg.Registry, "node", r.cfg.Name, "every", r.cfg.Interval,
		)
	}
}

// beat sends one heartbeat.
func (r *Reporter) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.Interval, beatTimeout))
	defer cancel()
	numbers, err := r.cfg.Report(ctx)
	if err != nil {
		return err
	}
	if r.after != 0 {
		numbers.After = &r.after
	}
	res, err := r.api.Heartbeat(ctx, r.cfg.Name, numbers)
	if err != nil {
		return err
	}
	var answer struct {
		Sequence int64 `json:"sequence"`
	}
	if err := read(res, http.StatusOK, maxBeatAnswer, &answer); err != nil {
		return err
	}
	r.after = answer.Sequence
	return nil
}
