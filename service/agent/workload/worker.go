package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/podman"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// grace is how long a container may take to stop before it is killed.
	grace = 10 * time.Second
	// firstRetry and lastRetry are the minimum and maximum wait after a failure. The wait doubles
	// with each failure.
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
	// untouched is how long a container that has just ended is left alone. Podman may be restarting
	// it, and starting a container while someone removes it by hand leaves a process behind that
	// Podman has lost track of (seen with 4.3.1).
	untouched = 3 * time.Second
)

// worker applies the desired state of one deployment.
type worker struct {
	m       *Manager
	id      string
	changed chan struct{}

	attempts int // failed attempts in a row
	sick     int // failed health checks of the running container in a row
}

func newWorker(m *Manager, id string) *worker {
	return &worker{m: m, id: id, changed: make(chan struct{}, 1)}
}

// wake makes the worker check again at once, interrupting any wait.
func (w *worker) wake() { signal(w.changed) }

// run works until the deployment is removed or ctx is done.
func (w *worker) run(ctx context.Context) {
	for {
		next, gone := w.once(ctx)
		if gone || ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-w.changed:
			w.attempts = 0
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// once checks and acts, and returns when to check again. If the desired state changes in the
// meantime, it ends early, and the next check follows at once.
func (w *worker) once(ctx context.Context) (next time.Duration, gone bool) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	routine.Go(w.m.cfg.Log, "deployment watch", func() {
		defer close(watched)
		select {
		case <-w.changed:
			w.wake() // for run to receive
			cancel()
		case <-ctx.Done():
		}
	})
	defer func() { cancel(); <-watched }()

	r, ok, err := w.m.store.get(ctx, w.id)
	switch {
	case err == nil && !ok:
		return 0, true
	case err == nil && r.Removed:
		if err = w.remove(ctx); err == nil {
			return 0, true
		}
	case err == nil:
		next, err = w.converge(ctx, r)
	}
	if err == nil {
		w.attempts = 0
		return next, false
	}
	if ctx.Err() != nil {
		return 0, false
	}
	w.attempts++
	wait := min(firstRetry<<min(w.attempts-1, 20), lastRetry)
	w.m.cfg.Log.Warn("deployment", "name", r.Desired.V.Name, "error", err, "again_in", wait)
	return wait, false
}

// remove removes the deployment's containers and then its stored state.
func (w *worker) remove(ctx context.Context) error {
	if w.m.podman != nil {
		if err := w.removeAllBut(ctx, ""); err != nil {
			return err
		}
	}
	return w.m.store.forget(ctx, w.id)
}

// say stores the deployment's status, which is reported to the control plane if it has changed.
func (w *worker) say(ctx context.Context, d edgeapi.AgentDeployment, status, message string) error {
	news, err := w.m.store.setStatus(ctx, w.id, d.Revision, status, message)
	if news {
		w.m.cfg.Log.Info("deployment", "name", d.Name, "version", d.Version, "status", status, "message", message)
		signal(w.m.news)
	}
	return err
}

// containers returns the deployment's containers by digest.
func (w *worker) containers(ctx context.Context) (map[string]podman.Listed, error) {
	list, err := w.m.podman.ListContainers(ctx, labelDeployment, w.id)
	if err != nil {
		return nil, err
	}
	byDigest := map[string]podman.Listed{}
	for _, c := range list {
		if c.Labels[labelAgent] == w.m.instance {
			byDigest[c.Labels[labelDigest]] = c
		}
	}
	return byDigest, nil
}

// removeAllBut removes the deployment's containers except the one with the digest keep. If keep is
// empty, it removes all.
func (w *worker) removeAllBut(ctx context.Context, keep string) error {
	containers, err := w.containers(ctx)
	if err != nil {
		return err
	}
	for digest, c := range containers {
		if digest == keep {
			continue
		}
		if err := w.m.podman.StopContainer(ctx, c.ID, grace); err != nil {
			return err
		}
		if err := w.m.podman.RemoveContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// stopAllBut stops the deployment's containers except the one with the digest keep, without
// removing them.
func (w *worker) stopAllBut(ctx context.Context, keep string) error {
	containers, err := w.containers(ctx)
	if err != nil {
		return err
	}
	for digest, c := range containers {
		if digest != keep {
			if err := w.m.podman.StopContainer(ctx, c.ID, grace); err != nil {
				return err
			}
		}
	}
	return nil
}

// converge takes the next step from what runs to the desired state.
func (w *worker) converge(ctx context.Context, r row) (time.Duration, error) {
	d := r.Desired.V
	if w.m.podman == nil {
		return w.m.cfg.Look, w.say(ctx, d, "failed", errSwitchedOff.Error())
	}
	if !w.m.allows(d) {
		if err := w.removeAllBut(ctx, ""); err != nil {
			return 0, errors.Join(
				err,
				w.say(
					ctx, d, "denied",
					"no policy pack allows the image, but Podman did not remove the container: "+oneLine(err.Error()),
				),
			)
		}
		if r.Current != "" || r.Failed != "" { // there is no version left to return to
			if err := w.m.store.proved(ctx, w.id, ""); err != nil {
				return 0, err
			}
		}
		return w.m.cfg.Look, w.say(ctx, d, "denied", "no policy pack allows the image "+d.Image)
	}
	if d.DesiredState == "stopped" {
		if err := w.stopAllBut(ctx, ""); err != nil {
			return 0, err
		}
		return w.m.cfg.Look, w.say(ctx, d, "stopped", "")
	}
	want := digest(d)
	containers, err := w.containers(ctx)
	if err != nil {
		return 0, errors.Join(err, w.say(ctx, d, "failed", oneLine(err.Error())))
	}
	_, made := containers[want]
	_, old := containers[r.Current]
	switch {
	case r.Current == want && made:
		return w.supervise(ctx, r, containers[want])
	case r.Failed == want && old:
		return w.hold(ctx, r, containers[r.Current])
	}
	return w.replace(ctx, r)
}

// replace replaces the current version by a new one.
func (w *worker) replace(ctx context.Context, r row) (time.Duration, error) {
	d := r.Desired.V
	// A version that is retried counts as failed until it proves itself.
	status, message := "pulling", ""
	if r.Revision == d.Revision && r.Status == "failed" {
		status, message = r.Status, r.Message
	}
	if err := w.say(ctx, d, status, message); err != nil {
		return 0, err
	}
	if _, err := w.m.podman.Pull(ctx, d.Image, string(d.PullPolicy)); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		// The previous version keeps running; a bad link is no reason to touch it.
		return 0, errors.Join(err, w.say(ctx, d, status, oneLine("trying again: "+err.Error())))
	}
	want, spec := digest(d), containerSpec(w.m.instance, d)
	err := w.begin(ctx, want, spec)
	if err == nil {
		err = w.verify(ctx, d, spec.Name)
	}
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case fault.Is(err, fault.Unavailable): // Podman is unavailable, which says nothing about the version
		return 0, err
	case err != nil:
		return 0, w.failed(ctx, d, want, r.Current, err)
	}
	if err := w.m.store.proved(ctx, w.id, want); err != nil {
		return 0, err
	}
	w.sick = 0
	if err := w.removeAllBut(ctx, want); err != nil {
		return 0, err
	}
	return w.nextLook(d), w.say(ctx, d, "running", "")
}

// begin creates and starts the container of a new version, and stops all others. A container from
// an earlier attempt is replaced.
func (w *worker) begin(ctx context.Context, want string, spec podman.Spec) error {
	if err := w.m.podman.RemoveContainer(ctx, spec.Name); err != nil {
		return err
	}
	if _, err := w.m.podman.CreateContainer(ctx, spec); err != nil {
		return err
	}
	if err := w.stopAllBut(ctx, want); err != nil {
		return err
	}
	return w.m.podman.StartContainer(ctx, spec.Name)
}

// failed returns to the current version, if there is one, and asks the control plane to do the
// same. Without one, the new version is retried later.
func (w *worker) failed(ctx context.Context, d edgeapi.AgentDeployment, want, current string, why error) error {
	message := oneLine(fmt.Sprintf("version %s: %v", d.Version, why))
	containers, err := w.containers(ctx)
	if err != nil {
		return errors.Join(why, err)
	}
	old, ok := containers[current]
	if !ok {
		if made, ok := containers[want]; ok {
			if err := w.m.podman.StopContainer(ctx, made.ID, grace); err != nil {
				return errors.Join(why, err)
			}
		}
		return errors.Join(why, w.say(ctx, d, "failed", message))
	}
	// Store it first: after a crash in between, it must not be retried.
	if err := w.m.store.disproved(ctx, w.id, want, message); err != nil {
		return errors.Join(why, err)
	}
	if err := w.removeAllBut(ctx, current); err != nil {
		return errors.Join(why, err)
	}
	if err := w.m.podman.StartContainer(ctx, old.ID); err != nil {
		return errors.Join(
			why, err, w.say(ctx, d, "failed", oneLine(message+"; and the version before does not start: "+err.Error())),
		)
	}
	w.m.rollbacks.Inc()
	w.m.cfg.Log.Error("deployment goes back to the version before", "name", d.Name, "version", d.Version, "error", why)
	return w.say(ctx, d, "failed", oneLine(message+"; the version before runs again"))
}

// hold keeps the version before a failed one running, whatever its restart policy, until the
// desired state changes.
func (w *worker) hold(ctx context.Context, r row, c podman.Listed) (time.Duration, error) {
	if err := w.stopAllBut(ctx, c.Labels[labelDigest]); err != nil {
		return 0, err
	}
	if err := w.m.podman.StartContainer(ctx, c.ID); err != nil { // no effect if it is running
		return 0, err
	}
	if d := r.Desired.V; r.Status != "failed" || r.Revision != d.Revision { // it was not stored yet
		return w.m.cfg.Look, w.say(
			ctx, d, "failed", oneLine(cmp.Or(r.Rollback, "version "+d.Version+" had failed here before")),
		)
	}
	return w.m.cfg.Look, nil
}

// supervise keeps a verified container running.
func (w *worker) supervise(ctx context.Context, r row, c podman.Listed) (time.Duration, error) {
	d := r.Desired.V
	if err := w.stopAllBut(ctx, c.Labels[labelDigest]); err != nil {
		return 0, err
	}
	info, err := w.m.podman.InspectContainer(ctx, c.ID)
	if err != nil {
		return 0, err
	}
	if !info.State.Running {
		return w.revive(ctx, r, info)
	}
	if d.Health == nil || len(d.Health.Command) == 0 {
		return w.nextLook(d), w.say(ctx, d, "running", "")
	}
	h := check(d)
	healthy, err := w.passes(ctx, h, c.ID)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if healthy {
		w.sick = 0
		return w.nextLook(d), w.say(ctx, d, "running", "")
	}
	if w.sick++; w.sick < h.retries {
		return w.nextLook(d), nil
	}
	message := fmt.Sprintf("%d checks in a row failed", w.sick)
	if err != nil {
		message += ": " + err.Error()
	}
	w.sick = 0
	if d.Restart == "no" {
		return w.nextLook(d), w.say(ctx, d, "failed", oneLine(message))
	}
	if err := w.say(ctx, d, "failed", oneLine(message+"; the container is started again")); err != nil {
		return 0, err
	}
	w.m.restarts.Inc()
	if err := w.m.podman.StopContainer(ctx, c.ID, grace); err != nil {
		return 0, err
	}
	return w.nextLook(d), w.m.podman.StartContainer(ctx, c.ID)
}

// revive starts a container that is not running. Podman itself restarts a container that ended,
// according to its restart policy, but not after a reboot of the machine (after which it looks as
// if it had only been created), and not one that we stopped.
func (w *worker) revive(ctx context.Context, r row, info podman.Container) (time.Duration, error) {
	d := r.Desired.V
	if age := w.m.cfg.Now().Sub(info.State.FinishedAt); age >= 0 &&
		age < untouched { // negative: the clock was set back
		return time.Second, nil
	}
	ended := info.State.Status == "exited" && r.Revision == d.Revision && r.Status != "pulling"
	switch {
	case ended && d.Restart != "always" && info.State.ExitCode == 0:
		return w.m.cfg.Look, w.say(ctx, d, "stopped", "the container ended with status 0")
	case ended && d.Restart == "no":
		return w.m.cfg.Look, w.say(
			ctx, d, "failed", fmt.Sprintf("the container ended with status %d", info.State.ExitCode),
		)
	}
	w.m.restarts.Inc()
	if err := w.m.podman.StartContainer(ctx, info.ID); err != nil {
		return 0, errors.Join(err, w.say(ctx, d, "failed", oneLine("the container does not start: "+err.Error())))
	}
	return firstRetry, nil
}

// nextLook returns when to check a running container again.
func (w *worker) nextLook(d edgeapi.AgentDeployment) time.Duration {
	if d.Health != nil && len(d.Health.Command) > 0 {
		return min(check(d).interval, w.m.cfg.Look)
	}
	return w.m.cfg.Look
}
