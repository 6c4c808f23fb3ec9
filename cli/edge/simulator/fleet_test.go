package simulator_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/edge/simulator"
)

// play runs a fleet against c in a bubble. test observes it and decides how much time passes. The
// fleet has ended when play returns.
func play(t *testing.T, change func(*simulator.Config), test func(c *control, f *simulator.Fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		cfg := simulator.Config{
			Client:          c.client(),
			EnrollmentToken: "let-me-in",
			Sites:           20,
			Devices:         90,
			Prefix:          "x",
			Version:         "v1",
			EventInterval:   10 * time.Second,
			OTADuration:     20 * time.Second,
			Workers:         4,
			Seed:            1,
			Now:             time.Now,
			Log:             slog.New(slog.DiscardHandler),
		}
		change(&cfg)
		f := simulator.New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		test(c, f)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func asIs(*simulator.Config) {}

func TestEverySiteEnrollsRegistersAndBeatsInItsOwnTime(t *testing.T) {
	t.Parallel()
	play(t, func(cfg *simulator.Config) { cfg.Sites, cfg.Devices = 300, 1000 }, func(c *control, f *simulator.Fleet) {
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := f.Stats()
		if s.Enrolled != 300 || s.Registered != 1000 || s.Online != 300 || len(c.devices) != 1000 {
			t.Errorf("%+v", s)
		}
		// 300 sites every 30 s are 10 a second; no second may have many more.
		seconds := map[int64]int{}
		for _, at := range c.beats {
			seconds[at.Unix()]++
		}
		most := 0
		for _, n := range seconds {
			most = max(most, n)
		}
		if n := len(c.beats); n < 5700 || n > 6300 || most > 35 {
			t.Errorf("%d beats in 10 minutes, at most %d in a second", n, most)
		}
	})
}

func TestAServerThatComesBackIsNotStampeded(t *testing.T) {
	t.Parallel()
	play(t, func(cfg *simulator.Config) { cfg.Sites, cfg.Devices = 300, 300 }, func(c *control, f *simulator.Fleet) {
		time.Sleep(2 * time.Minute)
		c.change(func() { c.away = true })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if s := f.Stats(); s.Online != 0 {
			t.Errorf("%d sites say they are online", s.Online)
		}
		c.change(func() { c.away, c.requests = false, nil })
		time.Sleep(time.Second)
		c.change(func() {
			if len(c.requests) > 60 {
				t.Errorf("%d requests in the first second", len(c.requests))
			}
		})
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if s := f.Stats(); s.Online != 300 {
			t.Errorf("%d sites are back", s.Online)
		}
	})
}

func TestUnderChaosEveryEventArrivesOnceAndInOrder(t *testing.T) {
	t.Parallel()
	play(t, func(cfg *simulator.Config) { cfg.Chaos = true }, func(c *control, f *simulator.Fleet) {
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		s := f.Stats()
		if s.Outages == 0 || s.EventsRepeated == 0 || s.EventsDropped != 0 {
			t.Errorf("chaos did too little or too much: %+v", s)
		}
		if s.EventsRepeated != c.repeated {
			t.Errorf("the server saw %d events again, the fleet heard of %d", c.repeated, s.EventsRepeated)
		}
		total := int64(0)
		for site, seqs := range c.events {
			total += int64(len(seqs))
			for i, seq := range seqs {
				if seq != i+1 {
					t.Errorf("%s: event %d came at place %d", site, seq, i+1)
					break
				}
			}
		}
		if s.EventsMade-total > 20*50 || s.EventsSent > total {
			t.Errorf("made %d, acknowledged %d, arrived %d", s.EventsMade, s.EventsSent, total)
		}
	})
}

func TestUpdatesGoAsTheFailRateSays(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 1} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			t.Parallel()
			play(t, func(cfg *simulator.Config) { cfg.FailRate = rate }, func(c *control, f *simulator.Fleet) {
				time.Sleep(time.Minute)
				c.change(func() {
					for id, d := range c.devices {
						d.request = "request-" + id
					}
					c.revision++
				})
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for id, d := range c.devices {
					if good := d.state == "succeeded"; good != (rate == 0) || len(moves[d.state]) != 0 {
						t.Errorf("%s ended as %s (%s)", id, d.state, strings.Join(d.states, ", "))
					}
					if rate == 0 && d.reported != `{"firmware":"2.0"}` {
						t.Errorf("%s reported %s", id, d.reported)
					}
				}
				if s := f.Stats(); s.OTAStarted != 90 || s.OTASucceeded+s.OTAFailed != 90 ||
					(s.OTAFailed == 0) != (rate == 0) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestAnUpdateThatIsSupersededIsGivenUpAndTheNextOneIsMade(t *testing.T) {
	t.Parallel()
	play(t, asIs, func(c *control, f *simulator.Fleet) {
		time.Sleep(time.Minute)
		ask := func(request string) {
			for id, d := range c.devices {
				d.request, d.state = request+id, ""
			}
		}
		c.change(func() {
			ask("first-")
			c.revision++
		})
		time.Sleep(35 * time.Second) // all have pulled it, and some are in the middle of it
		c.change(func() { ask("second-") })
		time.Sleep(time.Minute) // their reports are refused
		c.change(func() { c.revision++ })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for id, d := range c.devices {
			if d.state != "succeeded" && d.state != "failed" && d.state != "rolled_back" {
				t.Errorf("%s ended as %q", id, d.state)
			}
		}
		if s := f.Stats(); s.OTAStarted <= 90 {
			t.Errorf("no device began a second update: %+v", s)
		}
	})
}

func TestDevicesTakeOverWhatIsDesired(t *testing.T) {
	t.Parallel()
	play(t, asIs, func(c *control, _ *simulator.Fleet) {
		time.Sleep(time.Minute)
		c.change(func() {
			for _, d := range c.devices {
				d.desired = `{"interval":5}`
			}
			c.revision++
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for id, d := range c.devices {
			if d.reported != `{"interval":5}` {
				t.Errorf("%s reported %s", id, d.reported)
			}
		}
	})
}

func TestARevokedSiteSaysNothingMore(t *testing.T) {
	t.Parallel()
	play(t, asIs, func(c *control, f *simulator.Fleet) {
		time.Sleep(time.Minute)
		c.change(func() {
			for token := range c.sites {
				c.revoked[token] = true
			}
		})
		time.Sleep(2 * time.Minute)
		c.change(func() { c.requests = nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := f.Stats(); s.Revoked != 20 || s.Online != 0 || len(c.requests) != 0 {
			t.Errorf("%d requests, %+v", len(c.requests), s)
		}
	})
}

func TestDeploymentsThatMayNotRunAreReportedAsDenied(t *testing.T) {
	t.Parallel()
	play(t, asIs, func(c *control, _ *simulator.Fleet) {
		c.change(func() {
			c.deployed = []edgeapi.AgentDeployment{{Id: "d1", Revision: 1, Allowed: false, DesiredState: "running"}}
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for site, status := range c.statuses {
			if status != "denied" {
				t.Errorf("%s reported %s", site, status)
			}
		}
		if len(c.statuses) != 20 {
			t.Errorf("%d sites reported", len(c.statuses))
		}
	})
}

func TestAWrongEnrollmentTokenEndsTheRunAndSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		f := simulator.New(simulator.Config{
			Client:          c.client(),
			EnrollmentToken: "wrong",
			Sites:           3,
			Workers:         2,
			Now:             time.Now,
			Log:             slog.New(slog.DiscardHandler),
		})
		if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "enrollment_token") {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestAFleetIsTheSameEachTimeWithOneSeed(t *testing.T) {
	t.Parallel()
	outcome := func() (states []string) {
		play(
			t,
			func(cfg *simulator.Config) { cfg.FailRate, cfg.Workers = 0.5, 1 },
			func(c *control, _ *simulator.Fleet) {
				time.Sleep(time.Minute)
				c.change(func() {
					for id, d := range c.devices {
						d.request = id
					}
					c.revision++
				})
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for id, d := range c.devices {
					states = append(states, id+" "+d.state)
				}
			},
		)
		slices.Sort(states)
		return states
	}
	if a, b := outcome(), outcome(); !slices.Equal(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
}
