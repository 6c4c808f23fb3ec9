//go:build linux

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// Hook is a program that a guest may have. The agent starts it when it has given the guest an
// identity of its own, just before the network devices are connected. It does what the guest has no
// service for, such as asking for an address.
const Hook = "/etc/mainstay-guest/personalized"

var (
	validHostname  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	validMachineID = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// personalize makes this guest one of its own. The random numbers come first, since keys are made
// of them, and the secret last, so that nobody is served before all is done. If it fails, the guest
// is neither the old one nor a new one, and the host ends it.
func (a *Agent) personalize(ctx context.Context, p wire.Personalize) (wire.Rotated, error) {
	if err := checkPersonalize(p); err != nil {
		return wire.Rotated{}, err
	}
	if a.freezer.frozen() {
		return wire.Rotated{}, wire.Errorf(wire.Frozen, "file systems are frozen")
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"random numbers", func() error { return reseed(p.Seed) }},
		{"clock", func() error {
			at := unix.NsecToTimeval(p.TimeNS)
			return unix.Settimeofday(&at)
		}},
		{"host name", func() error { return rename("/", p.Hostname) }},
		{"machine id", func() error { return setMachineID("/", p.MachineID) }},
		{"network devices", func() error { return setMACs(p.MACs) }},
		{"stored seed of random numbers", func() error { return renewStoredSeeds("/") }},
		{"SSH host keys", func() error { return renewHostKeys(ctx, "/", a.config.Log) }},
	} {
		if err := step.do(); err != nil {
			return wire.Rotated{}, wire.Errorf(wire.Failed, "%s: %v", step.what, err)
		}
	}
	rotated, err := a.rotate(p.Secret)
	if err == nil {
		a.startHook()
	}
	return rotated, err
}

func checkPersonalize(p wire.Personalize) error {
	switch {
	case len(p.Seed) < wire.MinSeed || len(p.Seed) > wire.MaxSeed:
		return wire.Errorf(wire.Invalid, "seed: must have %d to %d bytes, not %d", wire.MinSeed, wire.MaxSeed, len(p.Seed))
	case p.TimeNS <= 0:
		return wire.Errorf(wire.Invalid, "time_ns: must be after 1970")
	case !validHostname.MatchString(p.Hostname):
		return wire.Errorf(wire.Invalid, "hostname: is not a host name")
	case !validMachineID.MatchString(p.MachineID):
		return wire.Errorf(wire.Invalid, "machine_id: must be 32 hexadecimal digits")
	}
	for from, to := range p.MACs {
		for _, text := range []string{from, to} {
			if mac, err := net.ParseMAC(text); err != nil || len(mac) != 6 {
				return wire.Errorf(wire.Invalid, "macs: %q is not the address of an interface", text)
			}
		}
	}
	return wire.ValidSecret(p.Secret)
}

// reseed adds a seed to the kernel's pool, and makes the generator start anew from it. Without the
// second step, all guests of a template would draw the same numbers for up to a minute.
func reseed(seed []byte) error {
	pool, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	// As in struct rand_pool_info of <linux/random.h>.
	var info struct {
		entropyBits, size int32
		seed              [wire.MaxSeed]byte
	}
	info.entropyBits, info.size = int32(8*len(seed)), int32(len(seed)) //nolint:gosec // at most MaxSeed bytes
	copy(info.seed[:], seed)
	if _, _, errno := unix.Syscall(
		unix.SYS_IOCTL, pool.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info)), //nolint:gosec // an ioctl's argument
	); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, pool.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("reseed: %w", errno)
	}
	return nil
}

// rename sets the host name, also for later boots of a guest that has stored one.
func rename(root, hostname string) error {
	if root == "/" {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return err
		}
	}
	path := filepath.Join(root, "etc/hostname")
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := replaceFile(path, 0o644, strings.NewReader(hostname+"\n")); err != nil {
		return err
	}
	return renameInHosts(filepath.Join(root, "etc/hosts"), strings.TrimSpace(string(old)), hostname)
}

// renameInHosts replaces a name in a hosts file, if there is one.
func renameInHosts(path, old, hostname string) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || old == "" {
		return nil
	}
	if err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		for i, word := range words {
			if i > 0 && word == old {
				words[i] = hostname
				line = strings.Join(words, "\t") + "\n"
			}
		}
		out.WriteString(line)
	}
	return replaceFile(path, 0o644, strings.NewReader(out.String()))
}

// setMachineID replaces the machine id of a guest that has one. The file is written in place, since
// it may be a mount point.
func setMachineID(root, id string) error {
	for _, name := range []string{"etc/machine-id", "var/lib/dbus/machine-id"} {
		path := filepath.Join(root, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() == fs.ModeSymlink {
			continue // the second is often a link to the first
		}
		if err != nil {
			return err
		}
		if err := os.Chmod(path, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(id+"\n"), 0o444); err != nil {
			return err
		}
		if err := os.Chmod(path, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// renewStoredSeeds replaces what the next boot would seed its random numbers with.
func renewStoredSeeds(root string) error {
	for _, name := range []string{"var/lib/systemd/random-seed", "var/lib/urandom/random-seed"} {
		path := filepath.Join(root, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		seed := make([]byte, 512)
		_, _ = rand.Read(seed) // it never fails
		if err := replaceFile(path, 0o600, strings.NewReader(string(seed))); err != nil {
			return err
		}
	}
	return nil
}

// ifreq is struct ifreq of <linux/if.h> with an address or flags.
type ifreq struct {
	name   [unix.IFNAMSIZ]byte
	family uint16 // or the flags
	data   [22]byte
}

// setMACs gives network interfaces other addresses. Each is down meanwhile, so that the guest's
// network manager notices, and forgets what it knew.
func setMACs(macs map[string]string) error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	control := func(request uintptr, r *ifreq) error {
		if _, _, errno := unix.Syscall(
			unix.SYS_IOCTL, uintptr(socket), request, uintptr(unsafe.Pointer(r)), //nolint:gosec // an ioctl's argument
		); errno != 0 {
			return errno
		}
		return nil
	}
	for from, to := range macs {
		found := false
		for _, it := range all {
			if it.HardwareAddr.String() != from {
				continue
			}
			found = true
			mac, err := net.ParseMAC(to)
			if err != nil {
				return err
			}
			if err := setMAC(control, it, mac); err != nil {
				return fmt.Errorf("%s: %w", it.Name, err)
			}
		}
		if !found {
			return fmt.Errorf("no interface has the address %s", from)
		}
	}
	return nil
}

func setMAC(control func(uintptr, *ifreq) error, it net.Interface, mac net.HardwareAddr) error {
	var flags, address ifreq
	copy(flags.name[:], it.Name)
	address.name = flags.name
	if err := control(unix.SIOCGIFFLAGS, &flags); err != nil {
		return err
	}
	down := flags
	down.family &^= unix.IFF_UP
	if err := control(unix.SIOCSIFFLAGS, &down); err != nil {
		return err
	}
	address.family = unix.ARPHRD_ETHER
	copy(address.data[:], mac)
	return errors.Join(control(unix.SIOCSIFHWADDR, &address), control(unix.SIOCSIFFLAGS, &flags))
}

var hostKey = regexp.MustCompile(`^ssh_host_(ed25519|ecdsa|rsa)_key$`)

// renewHostKeys replaces all SSH host keys of a guest that has some, and makes a running sshd read
// them. An RSA key can take seconds to make: where there are others, it is made afterwards.
func renewHostKeys(ctx context.Context, root string, log *slog.Logger) error {
	folder := filepath.Join(root, "etc/ssh")
	old, err := filepath.Glob(filepath.Join(folder, "ssh_host_*_key*"))
	if err != nil || len(old) == 0 {
		return err
	}
	var kinds []string
	for _, path := range old {
		if found := hostKey.FindStringSubmatch(filepath.Base(path)); found != nil {
			kinds = append(kinds, found[1])
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if len(kinds) > 0 && kinds[len(kinds)-1] == "rsa" && len(kinds) > 1 { // they are sorted
		kinds = kinds[:len(kinds)-1]
		go func() {
			if err := makeHostKey(context.WithoutCancel(ctx), folder, "rsa"); err != nil {
				log.Error("the RSA host key was not made", "error", err)
				return
			}
			reloadSSH(root, log)
		}()
	}
	for _, kind := range kinds {
		if err := makeHostKey(ctx, folder, kind); err != nil {
			return err
		}
	}
	reloadSSH(root, log)
	return nil
}

// keyLimit is the timeout for making a key, which is long in a guest that is translated.
const keyLimit = 10 * time.Minute

func makeHostKey(ctx context.Context, folder, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, keyLimit)
	defer cancel()
	program, err := lookPath("ssh-keygen", "/", environment)
	if err != nil {
		return err
	}
	path := filepath.Join(folder, "ssh_host_"+kind+"_key")
	cmd := exec.CommandContext(ctx, program, "-q", "-t", kind, "-N", "", "-C", "", "-f", path)
	cmd.Env = environment
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ssh-keygen: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// reloadSSH makes sshd start over, which reads its keys, as "systemctl reload ssh" does.
func reloadSSH(root string, log *slog.Logger) {
	raw, err := os.ReadFile(filepath.Join(root, "run/sshd.pid"))
	if err != nil {
		return // it does not run
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 1 {
		return
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || strings.TrimSpace(string(name)) != "sshd" {
		return // the number is another process's by now
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		log.Error("sshd is not told of its new keys", "error", err)
	}
}

// startHook starts the guest's own program, if it has one, and does not wait for it.
func (a *Agent) startHook() {
	if _, err := os.Stat(Hook); err != nil {
		return
	}
	cmd := exec.Command(Hook)
	cmd.Env = environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		a.config.Log.Error("the guest's own program was not started", "program", Hook, "error", err)
		return
	}
	go func() { _ = cmd.Wait() }() // so that it does not stay as a zombie
}
