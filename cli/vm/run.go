package vm

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/guest"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

const (
	// settleTime is how many seconds to wait, after a console has ended, for the VM to stop. This
	// distinguishes it from a broken connection.
	settleTime = 10
	// cleanupTime limits the removal of a VM after Ctrl-C.
	cleanupTime = 30 * time.Second
)

// attempt is one `vm run`.
type attempt struct {
	*daemon.Call
	guests       guest.Reach[*hypervisorapi.Client]
	id, name     string
	keep, detach bool
	waiting
}

func (s commands) run() *cobra.Command {
	var flags spec.Flags
	var name string
	a := attempt{guests: s.guests()}
	a.guests.At = func(context.Context, *daemon.Call, string) (string, url.Values, error) { return pathOf(a.id), nil, nil }
	cmd := s.Command(verb.Verb{
		Use:   "run IMAGE",
		Short: "Make a VM of an image, start it, and attach its console",
		Long: `Create a VM from an image, start it, and attach its console to this terminal. IMAGE is a name in the catalog or an
absolute path on the host. Ctrl-] detaches; the VM keeps running. When the guest powers off, the VM is removed unless
--keep is given.`,
		Example: "  mainstay vm run demo\n  mainstay vm run demo --name trial --memory 1G --keep\n  mainstay vm run /var/lib/images/debian.qcow2 --detach --label role=web --wait agent",
	}, func(ctx context.Context, c *daemon.Call) error {
		if err := a.check(); err != nil {
			return err
		}
		if a.target != "" && !a.detach {
			return exit.Usagef("--wait needs --detach: the console shows how far the guest is")
		}
		request, err := flags.Spec(c, name)
		if err != nil {
			return err
		}
		if request.Name == "" {
			request.Name = inventName(c.Args[0])
		}
		request.Image = &c.Args[0]
		a.Call, a.name = c, request.Name
		return a.run(ctx, request)
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the VM (default: one is made of the image's)")
	f.BoolVar(&a.keep, "keep", false, "do not remove the VM when the guest powers off")
	f.BoolVarP(&a.detach, "detach", "d", false, "do not attach the console")
	flags.AddShort(cmd)
	a.addTo(cmd)
	return cmd
}

// inventName derives a name such as demo-x7f2q from an image's name or path.
func inventName(image string) string {
	base := image[strings.LastIndexByte(image, '/')+1:]
	base, _, _ = strings.Cut(base, ":")
	base = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(base, ".qcow2"), ".img"), ".raw")
	base = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, base)
	base = strings.Trim(base[:min(len(base), 50)], "-")
	return cmp.Or(base, "vm") + "-" + strings.ToLower(rand.Text()[:5])
}

func (a *attempt) run(ctx context.Context, request hypervisorapi.VMSpec) error {
	answer, err := a.boot(ctx, request)
	if err != nil {
		return err
	}
	if a.detach && a.target != "" {
		a.up = true
		return a.waiting.finish(ctx, a.Call, a.id, a.name)
	}
	if a.detach {
		return a.Done(
			answer,
			"%s is running. 'mainstay vm console %s' attaches its console, 'mainstay vm delete %s' removes it.",
			a.name, a.name, a.name,
		)
	}
	detached, err := a.guests.Attach(ctx, a.Call, a.name)
	switch {
	case err != nil:
		return exit.Hinted(
			err,
			fmt.Sprintf(
				"the VM goes on: 'mainstay vm console %s' attaches its console, 'mainstay vm delete %s' removes it",
				a.name, a.name,
			),
		)
	case detached:
		a.Note(
			"Detached; %s goes on. 'mainstay vm console %s' comes back, 'mainstay vm delete %s' removes it.",
			a.name, a.name, a.name,
		)
		return nil
	}
	return a.finish(ctx)
}

// boot creates and starts the VM. If it does not start, it is removed, unless it is to be kept.
func (a *attempt) boot(ctx context.Context, request hypervisorapi.VMSpec) (answer daemon.Answer, err error) {
	err = a.While(ctx, "Starting "+a.name, func() error {
		vm, err := daemon.Decode[hypervisorapi.VM](a.Send(a.Slow.CreateVM(ctx, request)))
		if err != nil {
			return err
		}
		a.id = vm.Id
		answer, err = a.Send(a.Slow.StartVM(ctx, a.id, hypervisorapi.StartOptions{}))
		return err
	})
	if err == nil || a.id == "" {
		return answer, err
	}
	if a.keep {
		return answer, exit.Hinted(
			err,
			fmt.Sprintf(
				"the VM is kept: 'mainstay vm events %s' tells more, 'mainstay vm delete %s' removes it", a.name,
				a.name,
			),
		)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if removeErr := remove(ctx, a.Call, a.id, a.name); removeErr != nil {
		return answer, fmt.Errorf("%w; and the VM %s could not be removed: %w", err, a.name, removeErr)
	}
	return answer, exit.Hinted(err, "the VM was removed; with --keep it stays, and 'mainstay vm events' tells more")
}

// finish removes the VM after its guest has powered off.
func (a *attempt) finish(ctx context.Context) error {
	comeBack := fmt.Sprintf(
		"'mainstay vm console %s' attaches it again, 'mainstay vm delete %s' removes the VM", a.name, a.name,
	)
	if _, err := a.Send(
		a.Slow.WaitVM(
			ctx, a.id, &hypervisorapi.WaitVMParams{State: hypervisorapi.StateStopped, Timeout: new(settleTime)},
		),
	); err != nil {
		vm, lookErr := daemon.Decode[hypervisorapi.VM](a.Send(a.API.GetVM(ctx, a.id)))
		if lookErr != nil {
			return lookErr
		}
		if vm.State == hypervisorapi.StateFailed {
			return exit.Hinted(
				fmt.Errorf("the VM %s failed: %s", a.name, vm.LastError),
				fmt.Sprintf("'mainstay vm events %s' tells more, 'mainstay vm delete %s' removes it", a.name, a.name),
			)
		}
		return exit.Hinted(fmt.Errorf("the console of %s ended, but it is %s", a.name, vm.State), comeBack)
	}
	if a.keep {
		a.Note("The guest has powered off. The VM %s is kept: 'mainstay vm start %s' starts it again.", a.name, a.name)
		return nil
	}
	if err := remove(ctx, a.Call, a.id, a.name); err != nil {
		return err
	}
	a.Note("The guest has powered off; the VM %s is removed.", a.name)
	return nil
}
