//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// story is a running demonstration.
type story struct {
	cfg     Config
	network *network
	traffic *traffic
	daemon  *daemon
	api     *lbapi.Client
}

const pollEvery = 20 * time.Millisecond

// tell runs the steps.
func (s *story) tell(ctx context.Context, console string) error {
	s.say(
		"One VIP %s in mode %s, three backends; %d new connections a second, and %d that stay open.", vip,
		s.cfg.Mode, time.Second/newEvery, keptOpen,
	)
	s.say("Console: %s    Try: mainstay lb backend list --server %s\n", console, console)
	steps := []struct {
		what string
		do   func(context.Context) (string, error)
	}{
		{"All backends share new connections.", nil},
		{"Backend b1 gets weight 3: three times the new connections of the others.", s.weight(1, 3)},
		{"Back to equal weights, and b2 is drained: it gets no new connections and keeps those it has.", s.drain},
		{"b2 is undrained.", s.undrain},
		{"b3 is killed: its connections break, health checks notice, the others take over.", s.killBackend},
		{"b3 is started again.", s.recoverBackend},
	}
	for i, step := range steps {
		s.say("%d. %s", i+1, step.what)
		if step.do != nil {
			note, err := step.do(ctx)
			if err != nil {
				return err
			}
			if note != "" {
				s.say("   %s", note)
			}
		}
		if err := s.watch(ctx, s.cfg.Step); err != nil {
			return err
		}
	}
	if !s.cfg.Stay {
		return nil
	}
	s.say("\nThat was all. Traffic goes on, for you to look at the console; Ctrl-C ends it.")
	return s.watch(ctx, 0)
}

func (s *story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.cfg.Out, format+"\n", args...) // output may be closed
}

// watch prints a line per second, for the given time or, if it is 0, until ctx ends.
func (s *story) watch(ctx context.Context, howLong time.Duration) error {
	s.traffic.read()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for begun := time.Now(); howLong == 0 || time.Since(begun) < howLong; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.daemon.done:
			return s.daemon.failure()
		case <-tick.C:
			s.say("%s", line(s.network.backends, s.traffic.read()))
		}
	}
	return nil
}

// line describes one second: for each backend the new connections it got, as a bar and a number,
// and in brackets its open ones.
func line(all []*backend, r reading) string {
	var b strings.Builder
	for _, backend := range all {
		n := r.got[backend.name]
		fmt.Fprintf(
			&b, "   %s %-14s%3d [%d]", backend.name, strings.Repeat("▇", min(14, (n+7)/8)), n, r.homes[backend.name],
		)
	}
	fmt.Fprintf(&b, "   failed %d, broken %d", r.failed, r.broken)
	return b.String()
}

func (s *story) weight(id, weight int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		_, err := rest.Read(s.api.SetWeight(ctx, fmt.Sprint(id), lbapi.SetWeightJSONRequestBody{Weight: weight}))
		return "", err
	}
}

func (s *story) drain(ctx context.Context) (string, error) {
	if _, err := s.weight(1, 0)(ctx); err != nil {
		return "", err
	}
	_, err := rest.Read(s.api.DrainBackend(ctx, "2", lbapi.DrainBackendJSONRequestBody{}))
	return "", err
}

func (s *story) undrain(ctx context.Context) (string, error) {
	_, err := rest.Read(s.api.UndrainBackend(ctx, "2", lbapi.UndrainBackendJSONRequestBody{}))
	return "", err
}

func (s *story) killBackend(ctx context.Context) (string, error) {
	s.traffic.read()
	s.network.backends[2].kill()
	took, err := s.await(ctx, 3, lbapi.BackendStateDown)
	lost := s.traffic.read()
	return fmt.Sprintf(
		"It was out of service after %d ms (checked every 500 ms, down after 2 failures); until then %d new connections failed, and %d that stay open broke.",
		took.Milliseconds(), lost.failed, lost.broken,
	), err
}

func (s *story) recoverBackend(ctx context.Context) (string, error) {
	if err := s.network.backends[2].start(ctx); err != nil {
		return "", err
	}
	took, err := s.await(ctx, 3, lbapi.BackendStateHealthy)
	return fmt.Sprintf("It was back after %d ms (2 checks that succeed).", took.Milliseconds()), err
}

// await waits until a backend is in a state, and returns how long that took.
func (s *story) await(ctx context.Context, id int, state lbapi.BackendState) (time.Duration, error) {
	begun := time.Now()
	err := s.poll(ctx, fmt.Sprintf("backend %d to be %s", id, state), func(all []lbapi.BackendRow) bool {
		for _, b := range all {
			if b.Id == id {
				return b.State == state
			}
		}
		return false
	})
	return time.Since(begun), err
}

func (s *story) awaitHealthy(ctx context.Context) error {
	return s.poll(ctx, "all backends to be healthy", func(all []lbapi.BackendRow) bool {
		for _, b := range all {
			if b.State != lbapi.BackendStateHealthy {
				return false
			}
		}
		return len(all) == backends
	})
}

// poll reads the backends until enough returns true.
func (s *story) poll(ctx context.Context, what string, enough func([]lbapi.BackendRow) bool) error {
	limit, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		rows, err := rest.Do[[]lbapi.BackendRow](s.api.ListBackends(limit))
		if err == nil && enough(rows) {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.daemon.done:
			return s.daemon.failure()
		case <-limit.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New("waited in vain for " + what)
		}
	}
}
