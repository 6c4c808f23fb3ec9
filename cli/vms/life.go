package vms

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) start() *cobra.Command {
	var mounts []string
	cmd := s.Command(verb.Verb{
		Use: "start VM", Short: "Start a VM, and wait until it runs",
		Long: `Start a VM, and wait until it runs. With --mount, the guest's agent mounts a folder of the host until the VM stops. That
is for admins without a tenant, and takes a folder that the hypervisor daemon's policy allows, and a guest with 9p.`,
		Example: "  mainstay vms start web\n  mainstay vms start web --no-wait\n  mainstay vms start web --mount /srv/data:/data:ro",
	}, func(ctx context.Context, c *call) error {
		var options vmapi.StartOptions
		var folders []vmapi.BindMount
		for _, m := range mounts {
			folder, err := parseMount(m)
			if err != nil {
				return err
			}
			folders, options.BindMounts = append(folders, folder), &folders
		}
		a, err := c.Send(c.API.StartVM(ctx, c.Args[0], &vmapi.StartVMParams{Tenant: s.of()}, options))
		moved, err := decode[vmapi.Moved](a, err)
		if err != nil {
			return err
		}
		if c.NoWait() || moved.JobId == nil {
			return c.Done(a, "%s starts.", c.Args[0])
		}
		if err := follow(ctx, c, "Starting "+c.Args[0], *moved.JobId); err != nil {
			return err
		}
		return s.running(ctx, c)
	})
	verb.NoWaitFlag(cmd)
	cmd.Flags().StringArrayVar(&mounts, "mount", nil, "folder of the host to mount in the guest: SOURCE:DESTINATION, or with :ro")
	return cmd
}

// parseMount parses SOURCE:DESTINATION[:ro].
func parseMount(text string) (vmapi.BindMount, error) {
	source, rest, _ := strings.Cut(text, ":")
	destination, mode, given := strings.Cut(rest, ":")
	if source == "" || destination == "" || given && mode != "ro" {
		return vmapi.BindMount{}, exit.Usagef("--mount %q is not SOURCE:DESTINATION or SOURCE:DESTINATION:ro", text)
	}
	return vmapi.BindMount{Source: source, Destination: destination, ReadOnly: &given}, nil
}

// running waits until a VM whose start was asked for runs: the job that makes the VM is followed by
// one that starts it.
func (s commands) running(ctx context.Context, c *call) error {
	for {
		a, err := c.Send(c.API.GetVM(ctx, c.Args[0], &vmapi.GetVMParams{Tenant: s.of()}))
		vm, err := decode[vmapi.VM](a, err)
		switch {
		case err != nil:
			return err
		case vm.Job != nil:
			if err := follow(ctx, c, "Starting "+c.Args[0], vm.Job.Id); err != nil {
				return err
			}
		case vm.State == vmapi.StateRunning:
			return c.Done(a, "%s is running.", c.Args[0])
		default:
			return fmt.Errorf("%s did not start: it is %s; %s", c.Args[0], vm.State, vm.LastError)
		}
	}
}

func (s commands) stop() *cobra.Command {
	var grace time.Duration
	var force bool
	cmd := s.verb(verb.Verb{
		Use: "stop VM", Short: "Ask the guest to shut down, and switch it off when its time is over",
		Example: "  mainstay vms stop web\n  mainstay vms stop web --grace 2m\n  mainstay vms stop web --force",
		Check: func(*cobra.Command, []string) error {
			const longest = 10 * time.Minute
			if grace < 0 || grace > longest {
				return exit.Usagef("--grace must be between 0 and %s, not %s", longest, grace)
			}
			return nil
		},
	}, "Stopping", "%s is stopped.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.Slow.StopVM(ctx, c.Args[0], &vmapi.StopVMParams{Tenant: s.of()}, vmapi.StopOptions{
			GraceSeconds: verb.Given(c, "grace", int(grace.Round(time.Second)/time.Second)), Force: verb.Given(c, "force", force),
		})
	})
	cmd.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long the guest may take to shut down")
	cmd.Flags().BoolVar(&force, "force", false, "switch it off at once")
	return cmd
}

func (s commands) restart() *cobra.Command {
	return s.verb(verb.Verb{Use: "restart VM", Short: "Reboot a VM that runs", Example: "  mainstay vms restart web"},
		"Restarting", "%s is running.", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.Slow.RestartVM(ctx, c.Args[0], &vmapi.RestartVMParams{Tenant: s.of()}, vmapi.Nothing{})
		})
}

func (s commands) pause() *cobra.Command {
	return s.verb(verb.Verb{Use: "pause VM", Short: "Halt a VM's processors", Example: "  mainstay vms pause web"},
		"Pausing", "%s is paused.", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.Slow.PauseVM(ctx, c.Args[0], &vmapi.PauseVMParams{Tenant: s.of()}, vmapi.Nothing{})
		})
}

func (s commands) resume() *cobra.Command {
	return s.verb(verb.Verb{Use: "resume VM", Short: "Let a paused VM continue", Example: "  mainstay vms resume web"},
		"Resuming", "%s is running.", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.Slow.ResumeVM(ctx, c.Args[0], &vmapi.ResumeVMParams{Tenant: s.of()}, vmapi.Nothing{})
		})
}

// verb returns a command that changes a VM and reports when that is done. doing is shown meanwhile; in
// done, %s stands for the VM.
func (s commands) verb(
	v verb.Verb, doing, done string, r func(context.Context, *call) (*http.Response, error),
) *cobra.Command {
	return s.Command(v, func(ctx context.Context, c *call) error {
		var a client.Answer
		if err := c.While(ctx, doing+" "+c.Args[0], func() (err error) {
			a, err = c.Send(r(ctx, c))
			return err
		}); err != nil {
			return err
		}
		return c.Done(a, done, c.Args[0])
	})
}
