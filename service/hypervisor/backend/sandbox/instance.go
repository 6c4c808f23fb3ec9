//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// Instance is a running sandbox.
type Instance struct {
	backend *Backend
	process *process.Process
	state   string // its state folder
	agent   bool

	done     chan struct{}
	ended    backend.End // once done is closed
	released chan struct{}
	release  sync.Once
}

var _ backend.Instance = (*Instance)(nil)

func (b *Backend) instance(s *backend.Spec, p *process.Process) *Instance {
	i := &Instance{
		backend:  b,
		process:  p,
		state:    stateFolder(s),
		agent:    s.Agent,
		done:     make(chan struct{}),
		released: make(chan struct{}),
	}
	routine.Go(nil, "VM end", func() {
		select {
		case <-p.Done():
			defer close(i.done)
			i.ended = howItEnded(i.state)
		case <-i.released:
		}
	})
	return i
}

// howItEnded derives how a sandbox ended from its files. Its kernel writes its counters only when
// the first process has ended.
func howItEnded(state string) backend.End {
	if info, err := os.Stat(filepath.Join(state, endFile)); err == nil && info.Size() > 0 {
		return backend.End{Clean: true, Reason: "the guest powered off"}
	}
	if said, err := process.Head(filepath.Join(state, panicFile), mostSaid); err == nil && len(said) > 0 {
		return backend.End{Reason: "the sandbox's kernel broke: " + words(said)}
	}
	return backend.End{Reason: "the sandbox was killed"}
}

// PID is that of the sandbox's kernel.
func (i *Instance) PID() int { return i.process.PID }

// Done is closed when the sandbox has ended, unless Close was called before.
func (i *Instance) Done() <-chan struct{} { return i.done }

// Ended says how, once Done is closed.
func (i *Instance) Ended() backend.End { return i.ended }

// Paused reports whether the programs in the sandbox are paused.
func (i *Instance) Paused(ctx context.Context) (bool, error) {
	out, err := i.backend.run(ctx, i.state, "state", id)
	if err != nil {
		return false, err
	}
	var is struct{ Status string }
	if err := json.Unmarshal(out, &is); err != nil {
		return false, fmt.Errorf("runsc state: %w", err)
	}
	return is.Status == "paused", nil
}

// Pause pauses the programs in the sandbox.
func (i *Instance) Pause(ctx context.Context) error { return i.do(ctx, "pause", id) }

// Resume resumes them.
func (i *Instance) Resume(ctx context.Context) error { return i.do(ctx, "resume", id) }

// PowerDown asks the first process to end, which then asks all others.
func (i *Instance) PowerDown(ctx context.Context) error { return i.do(ctx, "kill", id, "TERM") }

func (i *Instance) do(ctx context.Context, command ...string) error {
	_, err := i.backend.run(ctx, i.state, command...)
	return err
}

// Kill kills the sandbox. Its gofer ends when it notices that; Clean waits for it.
func (i *Instance) Kill(context.Context) error { return i.process.Kill() }

// Close detaches from the sandbox, which keeps running.
func (i *Instance) Close() error {
	i.release.Do(func() { close(i.released) })
	return i.process.Close()
}

// Checkpoint writes the sandbox's memory and changed files to a folder, for Restore. The folder
// must not exist. The sandbox is paused while it is written, and restored to its previous state. On
// an error, the folder is removed.
func (i *Instance) Checkpoint(ctx context.Context, folder string) error {
	if err := os.Mkdir(folder, 0o700); errors.Is(err, os.ErrExist) {
		return fault.Wrap(fault.Conflict, err, "there is a checkpoint of that name")
	} else if err != nil {
		return err
	}
	err := i.do(ctx, "checkpoint", "--leave-running", "--compression=none", "--image-path="+folder, id)
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return nil
}
