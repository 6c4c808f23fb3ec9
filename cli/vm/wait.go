package vm

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

const (
	// forAgent waits for the guest agent, which is not a state of the VM.
	forAgent = "agent"
	// waitLimit is the default time limit of a wait.
	waitLimit = 10 * time.Minute
	// waitInterval is how often the VM is polled.
	waitInterval = 200 * time.Millisecond
)

// waiting waits until a VM is in a state, or its agent is connected.
type waiting struct {
	target string // a state, or forAgent
	limit  time.Duration
	up     bool // it was started, or was seen running: if it stops, waiting is pointless
}

// addTo adds the flags of a command that starts a VM.
func (w *waiting) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&w.target, "wait", "", "wait until the VM is running, or until its agent is connected: running or agent",
	)
	cmd.Flags().DurationVar(&w.limit, "wait-timeout", waitLimit, "how long to wait, with --wait")
}

// check validates the flags of addTo.
func (w *waiting) check() error {
	if w.target != "" && w.target != forAgent && w.target != string(hypervisorapi.StateRunning) {
		return exit.Usagef("--wait must be running or agent, not %q", w.target)
	}
	return nil
}

func (s commands) wait() *cobra.Command {
	var w waiting
	cmd := s.Command(verb.Verb{
		Use:   "wait VM",
		Short: "Wait until a VM is in a state, or until its agent is connected",
		Long: `Wait until a VM is running, stopped or in another state (creating, starting, paused, stopping, failed, deleting), or with
--for agent until the agent in its guest is connected, which 'mainstay vm exec' and 'mainstay vm cp' need.

It exits with 1 when the time is up, and at once when the VM fails, or when it stops before its agent is connected.`,
		Example: "  mainstay vm wait web --for agent\n  mainstay vm wait web --for stopped --timeout 1h",
	}, func(ctx context.Context, c *daemon.Call) error {
		if w.target == "" {
			return exit.Usagef("--for is missing: running, agent, stopped or another state")
		}
		if w.target != forAgent && !hypervisorapi.State(w.target).Valid() {
			return exit.Usagef(
				"--for must be agent, or creating, stopped, starting, running, paused, stopping, failed or deleting, not %q",
				w.target,
			)
		}
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		return w.finish(ctx, c, id, c.Args[0])
	})
	cmd.Flags().StringVar(&w.target, "for", "", "running, agent, stopped, or another state")
	cmd.Flags().DurationVar(&w.limit, "timeout", waitLimit, "how long to wait")
	return cmd
}

// finish waits, and prints the VM afterwards.
func (w *waiting) finish(ctx context.Context, c *daemon.Call, id, name string) error {
	text, done := fmt.Sprintf("Waiting until %s is %s", name, w.target), name+" is "+w.target+"."
	if w.target == forAgent {
		text, done = "Waiting for the agent of "+name, name+" is running, and its agent is connected."
	}
	var a daemon.Answer
	if err := c.While(ctx, text, func() (err error) {
		a, err = w.wait(ctx, c, id, name)
		return err
	}); err != nil {
		return err
	}
	return c.Done(a, "%s", done)
}

// wait polls the VM until it is in the target state, cannot reach it, or the time limit has passed.
func (w *waiting) wait(ctx context.Context, c *daemon.Call, id, name string) (daemon.Answer, error) {
	for end := time.Now().Add(w.limit); ; {
		a, err := c.Send(c.API.GetVM(ctx, id))
		vm, err := daemon.Decode[hypervisorapi.VM](a, err)
		if err != nil {
			return a, err
		}
		if done, err := w.reached(vm, name); done || err != nil {
			return a, err
		}
		if time.Now().After(end) {
			return a, w.late(vm, name)
		}
		if !pause(ctx, min(waitInterval, max(time.Until(end), time.Millisecond))) {
			return a, fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
}

// reached reports whether a VM is in the target state. The error explains why it will not get
// there.
func (w *waiting) reached(vm hypervisorapi.VM, name string) (bool, error) {
	switch {
	case string(vm.State) == w.target:
		return true, nil
	case vm.State == hypervisorapi.StateFailed:
		why := ""
		if vm.LastError != "" {
			why = ": " + vm.LastError
		}
		return false, exit.Hinted(
			fmt.Errorf("the VM %s failed%s", name, why), fmt.Sprintf("'mainstay vm events %s' tells more", name),
		)
	case w.target == forAgent && !vm.Agent.Enabled:
		return false, fmt.Errorf("the VM %s was made without an agent", name)
	case w.target == forAgent && vm.Agent.Connected && vm.State == hypervisorapi.StateRunning:
		return true, nil
	case vm.State == hypervisorapi.StateStopped && w.up &&
		(w.target == forAgent || w.target == string(hypervisorapi.StateRunning)):
		return false, exit.Hinted(
			fmt.Errorf("the VM %s stopped while it was waited for", name),
			fmt.Sprintf("'mainstay vm events %s' tells why", name),
		)
	}
	w.up = w.up || vm.State == hypervisorapi.StateStarting || vm.State == hypervisorapi.StateRunning
	return false, nil
}

// late returns the error for an exceeded time limit.
func (w *waiting) late(vm hypervisorapi.VM, name string) error {
	if w.target != forAgent {
		return fmt.Errorf("the VM %s is %s, and was not %s within %s", name, vm.State, w.target, w.limit)
	}
	hint := fmt.Sprintf(
		"'mainstay vm console %s' shows what the guest does; a guest without mainstay-guest has no agent", name,
	)
	if vm.State == hypervisorapi.StateStopped {
		hint = fmt.Sprintf("'mainstay vm start %s' starts it", name)
	}
	return exit.Hinted(
		fmt.Errorf("the VM %s is %s, and its agent was not connected within %s", name, vm.State, w.limit), hint,
	)
}
