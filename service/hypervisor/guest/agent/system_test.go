//go:build linux

package agent_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func TestTheNetworkOfTheMachineIsTold(t *testing.T) {
	t.Parallel()
	interfaces, err := newClient(t).Network(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(interfaces, func(it wire.Interface) bool { return it.Name == "lo" })
	if i < 0 || !slices.Contains(interfaces[i].Addresses, netip.MustParsePrefix("127.0.0.1/8")) || !interfaces[i].Up ||
		interfaces[i].MTU < 1000 {
		t.Errorf("%+v", interfaces)
	}
}

func TestShutdownBeginsAsAsked(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	c := newAgent(t, func(c *agent.Config) {
		c.Shutdown = func(mode string) error { asked <- mode; return nil }
	}).client(t, secret)
	if err := c.Shutdown(t.Context(), "explode"); !guest.IsRefusal(err, wire.Invalid) || len(asked) > 0 {
		t.Error(err)
	}
	for _, mode := range []string{wire.PowerOff, wire.Reboot} {
		if err := c.Shutdown(t.Context(), mode); err != nil || <-asked != mode {
			t.Error(mode, err)
		}
	}
}

func TestDiskFileSystemsAreFoundOnceEach(t *testing.T) {
	t.Parallel()
	got, err := agent.ParseMounts(strings.NewReader(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
24 22 254:16 / /a\040b rw shared:2 master:3 - xfs /dev/vdb rw,attr2
25 22 254:16 /x /bound rw - xfs /dev/vdb rw
26 22 254:32 / /cd ro - iso9660 /dev/sr0 ro,nojoliet
27 22 0:30 / /nfs rw - nfs4 host:/dev/x rw
not a line
`))
	want := []agent.Mount{{Device: "254:0", Path: "/"}, {Device: "254:16", Path: "/a b"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// loopMount mounts a file system of its own in a file. Its unmounting thaws it.
func loopMount(t *testing.T) agent.Mount {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Missing(t, "mounting a file system needs root")
	}
	folder := t.TempDir()
	image, path := filepath.Join(folder, "image"), filepath.Join(folder, "mount")
	for _, argv := range [][]string{
		{"truncate", "-s", "16M", image},
		{require.Program(t, "mkfs.ext4", "e2fsprogs"), "-q", image},
		{"mkdir", path},
		{"mount", "-o", "loop", image, path},
	} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			if argv[0] == "mount" {
				require.Missing(t, "no loop device can be mounted: %s", out)
			}
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		_ = ioctl(path, 0xc0045878) // a frozen one would keep its device
		if out, err := exec.Command("umount", path).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return agent.Mount{Path: path}
}

func ioctl(path string, request uint) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), request, 0)
}

// isFrozen asks the kernel to freeze once more, which it refuses if that was done.
func isFrozen(t *testing.T, m agent.Mount) bool {
	t.Helper()
	switch err := ioctl(m.Path, 0xc0045877); {
	case errors.Is(err, unix.EBUSY):
		return true
	case err == nil:
		if err := ioctl(m.Path, 0xc0045878); err != nil {
			t.Error(err)
		}
		return false
	default:
		t.Fatal(err)
		return false
	}
}

// These tests share a file system each with nobody, and none is of the machine.
func freezable(t *testing.T) (agent.Mount, *stand) {
	m := loopMount(t)
	return m, newAgent(t, func(c *agent.Config) {
		c.Mounts = func() ([]agent.Mount, error) {
			return []agent.Mount{m, {Path: "/proc"}}, nil // which cannot be frozen
		}
	})
}

func TestAFileSystemIsFrozenUntilItIsThawed(t *testing.T) {
	t.Parallel()
	m, s := freezable(t)
	c := s.client(t, secret)
	if n, err := c.Freeze(t.Context(), time.Minute); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if !isFrozen(t, m) {
		t.Error("it is not frozen")
	}
	if _, err := c.Freeze(t.Context(), time.Minute); !guest.IsRefusal(err, wire.Busy) {
		t.Errorf("once more: %v", err)
	}
	if err := c.PutFile(t.Context(), filepath.Join(m.Path, "x"), 0o600, 1, endless{}); !guest.IsRefusal(
		err, wire.Frozen,
	) {
		t.Errorf("writing: %v", err)
	}
	if _, err := c.RotateSecret(t.Context(), "new"); !guest.IsRefusal(err, wire.Frozen) {
		t.Errorf("rotating: %v", err)
	}
	if n, err := c.Thaw(t.Context()); err != nil || n != 1 {
		t.Error(n, err)
	}
	if isFrozen(t, m) {
		t.Error("it is still frozen")
	}
	if n, err := c.Thaw(t.Context()); err != nil || n != 0 {
		t.Errorf("once more: %d, %v", n, err)
	}
	if err := c.PutFile(t.Context(), filepath.Join(m.Path, "x"), 0o600, 1, endless{}); err != nil {
		t.Error(err)
	}
}

func TestAFileSystemThawsAtTheLimitAndWithItsSession(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"limit": time.Second, "session": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := freezable(t)
			c := s.client(t, secret)
			if n, err := c.Freeze(t.Context(), limit); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			if name == "session" {
				c.Close()
			}
			eventually(t, "it is thawed", func() bool { return !isFrozen(t, m) })
			if name == "limit" {
				if n, err := c.Thaw(t.Context()); err != nil || n != 0 {
					t.Errorf("the daemon does not learn of it: %d, %v", n, err)
				}
			}
		})
	}
}

func TestFreezingWithoutAnythingToFreezeIsRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	if _, err := c.Freeze(t.Context(), time.Minute); !guest.IsRefusal(err, wire.Unsupported) {
		t.Error(err)
	}
	for _, limit := range []time.Duration{0, time.Second - time.Millisecond, time.Hour} {
		if _, err := c.Freeze(t.Context(), limit); !guest.IsRefusal(err, wire.Invalid) {
			t.Errorf("%v: %v", limit, err)
		}
	}
}

func TestThePortIsFoundByItsName(t *testing.T) {
	t.Parallel()
	class := t.TempDir()
	for device, name := range map[string]string{"vport0p1": "com.redhat.spice.0", "vport1p2": agent.PortName} {
		if err := os.Mkdir(filepath.Join(class, device), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, device, "name"), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := agent.FindPortIn(class, agent.PortName); err != nil || got != "/dev/vport1p2" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := agent.FindPortIn(class, "org.mainstay.guest.1"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// The kernel refuses a port that the agent before has open still, as while its threads end.
func TestAPortThatIsBusyIsWaitedForAndNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, began := os.NewFile(0, "port"), time.Now()
		port, err := agent.UntilFree(t.Context(), func() (*os.File, error) {
			if time.Since(began) < 5*time.Second {
				return nil, &os.PathError{Op: "open", Path: "/dev/vport", Err: unix.EBUSY}
			}
			return file, nil
		})
		if port != file || err != nil {
			t.Errorf("%v, %v", port, err)
		}
		for _, want := range []error{unix.EBUSY, unix.ENOENT} { // one that stays so, and one that is not waited for
			began = time.Now()
			_, err = agent.UntilFree(t.Context(), func() (*os.File, error) { return nil, want })
			if waited := time.Since(began); !errors.Is(err, want) ||
				(want == unix.EBUSY) != (waited == 30*time.Second) {
				t.Errorf("%v: %v after %v", want, err, waited)
			}
		}
	})
}
