package workload

import (
	"context"
	"fmt"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/podman"
)

// verify waits until a container that was just started has proved itself: its health check passes
// or, without one, it runs for the settling time without a restart. If ctx has not ended, the error
// says why it has not.
func (w *worker) verify(ctx context.Context, d edgeapi.AgentDeployment, name string) error {
	if d.Health == nil || len(d.Health.Command) == 0 {
		return w.settle(ctx, name)
	}
	c := check(d)
	started := w.m.cfg.Now()
	failures := 0
	for {
		info, err := w.stays(ctx, name)
		if err != nil {
			return err
		}
		healthy, err := w.passes(ctx, c, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if healthy {
			return nil
		}
		if w.m.cfg.Now().Sub(started) >= c.startPeriod {
			failures++
		}
		if failures >= c.retries {
			return w.because(ctx, info, fmt.Sprintf("did not become healthy: %d checks in a row failed", failures), err)
		}
		if err := sleep(ctx, c.interval); err != nil {
			return err
		}
	}
}

// settle waits for the settling time and checks the container several times.
func (w *worker) settle(ctx context.Context, name string) error {
	const looks = 5
	for range looks {
		if err := sleep(ctx, w.m.cfg.Settle/looks); err != nil {
			return err
		}
		if _, err := w.stays(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// stays returns an error if a new container has ended, even if Podman has restarted it.
func (w *worker) stays(ctx context.Context, name string) (podman.Container, error) {
	info, err := w.m.podman.InspectContainer(ctx, name)
	if err != nil {
		return info, err
	}
	if !info.State.Running || info.RestartCount > 0 {
		return info, w.because(
			ctx, info, fmt.Sprintf("ended right after its start, with status %d", info.State.ExitCode), nil,
		)
	}
	return info, nil
}

// passes runs a container's health check once, within its timeout.
func (w *worker) passes(ctx context.Context, c healthCheck, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return w.m.podman.CheckHealth(ctx, name)
}

// because returns an error that adds a container's last output to what is wrong with it.
func (w *worker) because(ctx context.Context, info podman.Container, what string, cause error) error {
	if info.State.OOMKilled {
		what += ", out of memory"
	}
	if info.State.Error != "" {
		what += ": " + info.State.Error
	}
	if cause != nil {
		what += ": " + cause.Error()
	}
	log, err := w.m.podman.Logs(ctx, info.ID, 5)
	if err == nil && log != "" {
		what += "; its last output: " + log
	}
	return &unproved{oneLine(what)}
}

// unproved is the reason why a container does not count as started.
type unproved struct{ why string }

func (u *unproved) Error() string { return u.why }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
