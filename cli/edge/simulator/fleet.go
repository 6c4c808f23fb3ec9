package simulator

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
)

// Config configures a simulation.
type Config struct {
	// Client talks to the control plane. It must not add credentials, since every site has its own.
	Client          *edgeapi.Client
	EnrollmentToken string
	Sites           int
	Devices         int    // in total; they are distributed evenly
	Prefix          string // of the device ids; must be unique per run against one server
	Version         string // of the agents
	FailRate        float64
	Chaos           bool
	Heartbeat       time.Duration // 0: the server's setting
	EventInterval   time.Duration // between two events of a site; 0: no events
	OTADuration     time.Duration // approximate duration of a successful update
	Workers         int           // concurrent requests
	Seed            uint64
	Now             func() time.Time
	Log             *slog.Logger
}

// Fleet is a simulated fleet of sites.
type Fleet struct {
	cfg   Config
	count counters
	noPKI atomic.Bool // the server signs no certificates

	mu       sync.Mutex
	lastSaid map[string]time.Time // each kind of message is logged at most once a minute
	fatal    error
}

// New returns a Fleet. It sends nothing before Run.
func New(cfg Config) *Fleet {
	return &Fleet{cfg: cfg, lastSaid: map[string]time.Time{}}
}

// Run runs the fleet until ctx ends. It fails only if no site can ever enroll.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	plan := newSchedule(f.cfg.Now)
	now := f.cfg.Now()
	for n := range f.cfg.Sites {
		s := f.newSite(n)
		s.due = now
		plan.put(s)
	}
	work := make(chan *site)
	var workers sync.WaitGroup
	for range f.cfg.Workers {
		workers.Go(func() {
			for {
				select {
				case s := <-work:
					if s.act(ctx, f.cfg.Now()) {
						plan.put(s)
					}
					if f.failure() != nil {
						cancel()
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	plan.run(ctx, work)
	workers.Wait()
	return f.failure()
}

func (f *Fleet) newSite(n int) *site {
	s := &site{fleet: f, rnd: rand.New(rand.NewPCG(f.cfg.Seed, uint64(n))), revision: -1, heartbeat: f.cfg.Heartbeat}
	s.name, s.labels = siteName(n)
	// The first sites get the remainder.
	own := f.cfg.Devices / f.cfg.Sites
	if n < f.cfg.Devices%f.cfg.Sites {
		own++
	}
	s.devices = make([]device, own)
	for i := range s.devices {
		s.devices[i] = newDevice(f.cfg.Prefix, s.name, i)
	}
	return s
}

// failed handles an error that is neither an outage nor a revocation.
func (f *Fleet) failed(s *site, err error) {
	refusal := (*refused)(nil)
	if errors.As(err, &refusal) && s.token == "" {
		if refusal.Code == "pki_disabled" {
			f.noPKI.Store(true) // continue without certificates
			return
		}
		f.mu.Lock()
		if f.fatal == nil {
			f.fatal = err // if one enrollment is refused, all are
		}
		f.mu.Unlock()
		return
	}
	f.warn(s, "a request was refused", err)
}

// warn logs a message, but the same text only once a minute, for all sites together.
func (f *Fleet) warn(s *site, message string, err error) {
	text, now := err.Error(), f.cfg.Now()
	f.mu.Lock()
	if len(f.lastSaid) > 1000 {
		clear(f.lastSaid)
	}
	say := now.Sub(f.lastSaid[text]) > time.Minute
	if say {
		f.lastSaid[text] = now
	}
	f.mu.Unlock()
	if say {
		f.cfg.Log.Warn(message, "site", s.name, "error", text)
	}
}

func (f *Fleet) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fatal
}

// Stats returns the results so far.
func (f *Fleet) Stats() Stats {
	c := &f.count
	s := Stats{
		Sites:          f.cfg.Sites,
		Devices:        f.cfg.Devices,
		Online:         c.online.Load(),
		Enrolled:       c.enrolled.Load(),
		Registered:     c.registered.Load(),
		Unanswered:     c.unanswered.Load(),
		Refused:        c.refused.Load(),
		Revoked:        c.revoked.Load(),
		EventsMade:     c.eventsMade.Load(),
		EventsSent:     c.eventsSent.Load(),
		EventsRepeated: c.repeated.Load(),
		EventsDropped:  c.eventsLost.Load(),
		OTAStarted:     c.otaStarted.Load(),
		OTASucceeded:   c.otaSucceeded.Load(),
		OTAFailed:      c.otaFailed.Load(),
		Outages:        c.outages.Load(),
		Latency:        map[string]Latency{},
	}
	for k := range kinds {
		if sum := c.latencies[k].sum(); sum.Count > 0 {
			s.Latency[kindNames[k]] = sum
		}
	}
	return s
}
