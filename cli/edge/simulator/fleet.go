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

// Config says what to simulate.
type Config struct {
	// Client talks to the control plane; it must not add credentials, since every
	// site has its own.
	Client          *edgeapi.Client
	EnrollmentToken string
	Sites           int
	Devices         int    // in all; they are spread evenly
	Prefix          string // of the device ids; two runs against one server need two
	Version         string // of the agents
	FailRate        float64
	Chaos           bool
	Heartbeat       time.Duration // 0: what the server asks for
	EventInterval   time.Duration // between two events of a site; 0: none
	OTADuration     time.Duration // of a smooth update, about
	Workers         int           // requests under way at once
	Seed            uint64
	Now             func() time.Time
	Log             *slog.Logger
}

// Fleet is many sites.
type Fleet struct {
	cfg   Config
	count counters
	noPKI atomic.Bool // the server signs no certificates

	mu       sync.Mutex
	lastSaid map[string]time.Time // a message of a kind is logged once a minute
	fatal    error
}

// New prepares a fleet; nothing is sent before Run.
func New(cfg Config) *Fleet {
	return &Fleet{cfg: cfg, lastSaid: map[string]time.Time{}}
}

// Run plays the fleet until ctx is done. It fails only when no site can ever
// enroll.
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
	// The first sites take what does not divide evenly.
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

// failed notes an error that is neither an outage nor the site's end.
func (f *Fleet) failed(s *site, err error) {
	refusal := (*refused)(nil)
	if errors.As(err, &refusal) && s.token == "" {
		if refusal.Code == "pki_disabled" {
			f.noPKI.Store(true) // continue without certificates
			return
		}
		f.mu.Lock()
		if f.fatal == nil {
			f.fatal = err // what one enrollment is refused for, all are
		}
		f.mu.Unlock()
		return
	}
	f.warn(s, "a request was refused", err)
}

// warn logs, but the same words only once a minute, however many sites say them.
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

// Stats sums up what has happened so far.
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
