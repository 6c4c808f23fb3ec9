package vm

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// verb returns a command that changes a VM and reports when it is done. doing is shown while it
// runs; in doing and done, %s stands for the VM as the user named it.
func (s commands) verb(
	v verb.Verb, doing, done string, r func(context.Context, *daemon.Call, string) (*http.Response, error),
) *cobra.Command {
	return s.Command(v, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		var a daemon.Answer
		if err := c.While(ctx, fmt.Sprintf(doing, c.Args[0]), func() (err error) {
			a, err = c.Send(r(ctx, c, id))
			return err
		}); err != nil {
			return err
		}
		return c.Done(a, done, c.Args[0])
	})
}

func (s commands) start() *cobra.Command {
	var w waiting
	var once startFlags
	cmd := s.Command(verb.Verb{
		Use: "start VM", Short: "Start a VM",
		Long: "Start a VM. What the flags for the kernel, the firmware, folders and arguments give holds for this start only.",
		Example: "  mainstay vm start web\n  mainstay vm start web --wait agent && mainstay vm exec web -- uname -a\n" +
			"  mainstay vm start web --share /srv/data:data:ro --extra-arg=-rtc --extra-arg base=localtime",
	}, func(ctx context.Context, c *daemon.Call) error {
		if err := w.check(); err != nil {
			return err
		}
		options, err := once.options(c)
		if err != nil {
			return err
		}
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		var a daemon.Answer
		if err := c.While(ctx, "Starting "+c.Args[0], func() (err error) {
			a, err = c.Send(c.Slow.StartVM(ctx, id, options))
			return err
		}); err != nil {
			return err
		}
		if w.target == "" {
			return c.Done(a, "%s is running.", c.Args[0])
		}
		w.up = true
		return w.finish(ctx, c, id, c.Args[0])
	})
	w.addTo(cmd)
	once.addTo(cmd)
	return cmd
}

func (s commands) stop() *cobra.Command {
	var p patience
	cmd := s.verb(verb.Verb{
		Use: "stop VM", Short: "Ask the guest to shut down, and end the VM when its time of grace is over",
		Example: "  mainstay vm stop web\n  mainstay vm stop web --grace 2m\n  mainstay vm stop web --force",
	}, "Stopping %s", "%s is stopped.", func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		body, err := p.body(c)
		if err != nil {
			return nil, err
		}
		return c.Slow.StopVM(ctx, id, body)
	})
	p.addTo(cmd)
	return cmd
}

func (s commands) restart() *cobra.Command {
	var p patience
	cmd := s.verb(verb.Verb{
		Use: "restart VM", Short: "Stop a VM that runs, as stop does, and start it again",
		Example: "  mainstay vm restart web\n  mainstay vm restart web --force",
	}, "Restarting %s", "%s is running.", func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		body, err := p.body(c)
		if err != nil {
			return nil, err
		}
		return c.Slow.RestartVM(ctx, id, body)
	})
	p.addTo(cmd)
	return cmd
}

// patience is how long a guest may take to shut down.
type patience struct {
	grace time.Duration
	force bool
}

func (p *patience) addTo(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&p.grace, "grace", 30*time.Second, "how long the guest may take to shut down")
	cmd.Flags().BoolVar(&p.force, "force", false, "end it at once")
}

func (p *patience) body(c *daemon.Call) (hypervisorapi.Stop, error) {
	if p.grace < 0 || p.grace > time.Hour {
		return hypervisorapi.Stop{}, exit.Usagef("--grace must be between 0 and 1h, not %s", p.grace)
	}
	return hypervisorapi.Stop{
		GraceSeconds: verb.Given(c, "grace", int(p.grace.Round(time.Second)/time.Second)),
		Force:        verb.Given(c, "force", p.force),
	}, nil
}

func (s commands) reset() *cobra.Command {
	return s.verb(
		verb.Verb{
			Use:     "reset VM",
			Short:   "Restart a guest at once, without asking it; what it has not written yet is lost",
			Example: "  mainstay vm reset web",
		},
		"Resetting %s",
		"The guest of %s restarts.",
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.Slow.ResetVM(ctx, id, hypervisorapi.Nothing{})
		},
	)
}

func (s commands) pause() *cobra.Command {
	return s.verb(
		verb.Verb{Use: "pause VM", Short: "Halt a VM's processors", Example: "  mainstay vm pause web"},
		"Pausing %s",
		"%s is paused.",
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.Slow.PauseVM(ctx, id, hypervisorapi.Nothing{})
		},
	)
}

func (s commands) resume() *cobra.Command {
	return s.verb(
		verb.Verb{Use: "resume VM", Short: "Let a paused VM go on", Example: "  mainstay vm resume web"},
		"Resuming %s",
		"%s is running.",
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.Slow.ResumeVM(ctx, id, hypervisorapi.Nothing{})
		},
	)
}

func (s commands) enable() *cobra.Command {
	return s.verb(
		verb.Verb{
			Use:     "enable VM",
			Short:   "Start a VM whenever the host starts",
			Example: "  mainstay vm enable web",
		},
		"Enabling %s",
		"%s starts with the host.",
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.API.EnableVM(ctx, id, hypervisorapi.Nothing{})
		},
	)
}

func (s commands) disable() *cobra.Command {
	return s.verb(
		verb.Verb{Use: "disable VM", Short: "Do not start a VM with the host", Example: "  mainstay vm disable web"},
		"Disabling %s",
		"%s does not start with the host.",
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.API.DisableVM(ctx, id, hypervisorapi.Nothing{})
		},
	)
}

func (s commands) delete() *cobra.Command {
	var yes bool
	cmd := s.Command(verb.Verb{
		Use: "delete VM", Short: "Stop a VM at once and remove it with its disks and snapshots; its backups stay",
		Example: "  mainstay vm delete web\n  mainstay vm delete web --yes",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.ExactVMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		if err := c.Confirm(fmt.Sprintf("Delete the VM %s with its disks and snapshots?", c.Args[0]), yes); err != nil {
			return err
		}
		if err := remove(ctx, c, id, c.Args[0]); err != nil {
			return err
		}
		return c.Say("Deleted the VM %s.", c.Args[0])
	})
	verb.YesFlag(cmd, &yes)
	return cmd
}

func remove(ctx context.Context, c *daemon.Call, id, name string) error {
	return c.While(ctx, "Deleting "+name, func() error {
		_, err := c.Send(c.Slow.DeleteVM(ctx, id))
		return err
	})
}
