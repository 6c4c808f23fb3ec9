//go:build linux

package agent

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func (c *call) network(context.Context, struct{}) (any, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	n := wire.Network{Interfaces: []wire.Interface{}}
	for _, it := range all {
		addresses, err := it.Addrs()
		if err != nil {
			continue // it was removed since
		}
		told := wire.Interface{
			Name: it.Name, MAC: it.HardwareAddr.String(), MTU: it.MTU,
			Up: it.Flags&net.FlagUp != 0, Addresses: []netip.Prefix{},
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				told.Addresses = append(told.Addresses, prefix)
			}
		}
		n.Interfaces = append(n.Interfaces, told)
	}
	return n, nil
}

func (c *call) shutdown(_ context.Context, args wire.Shutdown) (any, error) {
	if args.Mode != wire.PowerOff && args.Mode != wire.Reboot {
		return nil, wire.Errorf(wire.Invalid, "mode: must be %s or %s", wire.PowerOff, wire.Reboot)
	}
	c.freezer.thaw() // or nothing could be written at the end
	return struct{}{}, c.config.Shutdown(args.Mode)
}

// forceAfter is how long the guest's own shutdown may take.
const forceAfter = time.Minute

// shutdown starts to power off or reboot through the guest's init system. If there is none, or if
// it does not finish, processes are asked to end and the kernel does it.
func shutdown(mode string, log *slog.Logger) error {
	if firstProcess() == program {
		return shutdownSandbox(mode, log)
	}
	wait := forceAfter
	if argv := shutdownCommand(mode); argv == nil {
		wait = 0
	} else if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
		log.Warn("the guest's way to shut down failed", "command", argv[0], "error", err)
		wait = 0
	}
	go func() {
		time.Sleep(max(wait, 100*time.Millisecond)) // for the answer to get out
		log.Warn("shutting down without the init system", "mode", mode)
		_ = unix.Kill(-1, unix.SIGTERM)
		time.Sleep(2 * time.Second)
		unix.Sync()
		how := unix.LINUX_REBOOT_CMD_POWER_OFF
		if mode == wire.Reboot {
			how = unix.LINUX_REBOOT_CMD_RESTART
		}
		log.Error("reboot(2)", "error", unix.Reboot(how))
	}()
	return nil
}

// program is the agent's name among processes.
const program = "mainstay-guest"

// shutdownSandbox shuts down a guest whose first process is Init.
func shutdownSandbox(mode string, log *slog.Logger) error {
	if mode == wire.Reboot {
		return wire.Errorf(wire.Invalid, "mode: a sandbox cannot reboot itself")
	}
	time.AfterFunc(100*time.Millisecond, func() { // for the answer to get out
		if err := unix.Kill(1, unix.SIGTERM); err != nil {
			log.Error("ask the first process to end", "error", err)
		}
	})
	return nil
}

// firstProcess returns the program name of process 1, or "" if it is unknown.
func firstProcess() string {
	b, err := os.ReadFile("/proc/1/cmdline")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\x00")
	return filepath.Base(strings.Fields(first + " -")[0])
}

// shutdownCommand returns the command that tells the guest's init system to shut down, or nil if
// the first process is not an init system, for example the script of an initial RAM disk.
func shutdownCommand(mode string) []string {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return []string{"systemctl", "--no-block", mode}
	}
	switch firstProcess() {
	case "init", "linuxrc", "openrc-init":
		return []string{mode}
	}
	return nil
}
