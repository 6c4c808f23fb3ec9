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
	// gap is the least time between two heartbeats that were asked for by Nudge.
	gap = time.Second
	// beatTimeout bounds a heartbeat, with the reading of the numbers.
	beatTimeout = 10 * time.Second
	// A heartbeat that failed is sent again after this share of the interval, and then after
	// twice as long each time, up to the interval.
	firstRetry    = 8
	maxBeatAnswer = 64 << 10 // bytes
)

// ReporterConfig is what a Reporter stands on. Registry, Name and Report are required.
type ReporterConfig struct {
	Registry string // URL of the registry
	Name     string // of this node
	Token    string // the fleet's
	// Report reads what the node has now. VMs that are being made count, from the moment
	// that their create can be answered.
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

// NewReporter makes a Reporter. Faults name the setting that is wrong: registry, name, ca_file.
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

// Nudge has heartbeats sent soon, because what the node has left has changed. It never waits.
func (r *Reporter) Nudge() {
	select {
	case r.nudge <- struct{}{}:
	default: // there is one already
	}
}

// Run sends heartbeats until ctx ends: the first at once, then one in every interval. The
// node stays registered when it returns, since its VMs continue.
func (r *Reporter) Run(ctx context.Context) {
	// What the registry has reserved goes with the second heartbeat after a create, so the
	// first one of all, and one that was asked for, is soon followed by another.
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

// pause waits until the next heartbeat is due. It tells whether there is to be one, and
// whether it is due for a nudge.
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

// wait is the time to the next heartbeat if nothing happens.
func (r *Reporter) wait() time.Duration {
	spread := 1 + jitter*(2*r.cfg.Rand()-1)
	wait := r.cfg.Interval
	if r.failures > 0 {
		wait = min(wait, wait/firstRetry<<min(r.failures-1, 10))
	}
	return time.Duration(float64(wait) * spread)
}

// tell logs that heartbeats have begun to fail or to be taken in.
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
