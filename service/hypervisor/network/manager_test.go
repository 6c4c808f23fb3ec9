//go:build linux

package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// churn, in the environment, makes this program one that attaches and detaches VMs
// with the given lease file until it is killed.
const churn = "MAINSTAY_TEST_CHURN"

func TestMain(m *testing.M) {
	if file := os.Getenv(churn); file != "" {
		if err := attachForEver(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func attachForEver(file string) error {
	m, err := New(Options{LeaseFile: file})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := 0; ; i++ {
		id := fmt.Sprint("vm", i%7)
		a, err := m.Attach(ctx, Port{VM: id, MAC: hw(byte(i%7 + 1))})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, id, a.IP); err != nil {
			return err
		}
		if i%3 == 0 {
			if err := m.Detach(ctx, id); err != nil {
				return err
			}
		}
	}
}

func (s *site) sweep(keep func(string) bool) (swept Swept) {
	s.t.Helper()
	s.must(s.do(func() (err error) { swept, err = s.m.Sweep(s.t.Context(), keep); return err }))
	return swept
}

func (s *site) taps() (found map[string]string) {
	s.t.Helper()
	s.must(s.do(func() (err error) { found, err = taps(s.m.o); return err }))
	return found
}

func (s *site) guarded() (names []string) {
	s.t.Helper()
	s.must(s.do(func() (err error) { names, err = guardedTaps(s.m.o); return err }))
	slices.Sort(names)
	return names
}

func TestADaemonThatIsKilledLosesNoAddressAndLeavesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.json")
	s := newSite(t, Options{LeaseFile: file})
	given := map[string]string{} // what a daemon has told of
	for round := range 6 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), churn+"="+file)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		s.must(err)
		s.must(s.host.Start(cmd))
		lines := bufio.NewScanner(out)
		for range 5 + 4*round {
			if !lines.Scan() {
				t.Fatal("the daemon has ended")
			}
			id, ip, _ := strings.Cut(lines.Text(), " ")
			if before := given[id]; before != "" && before != ip {
				t.Errorf("%s had %s and has %s", id, before, ip)
			}
			given[id] = ip
		}
		s.must(cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}
	s.m = s.manager(Options{LeaseFile: file})
	for id, ip := range given {
		if got := s.m.Addresses(id); len(got) != 1 || got[0].String() != ip {
			t.Errorf("%s has %v, was told %s", id, got, ip)
		}
	}
	there, leases := len(s.taps()), len(s.m.book.all())
	if swept := s.sweep(func(string) bool { return false }); swept.Taps != there || swept.Leases != leases ||
		there == 0 {
		t.Errorf("%+v of %d taps, %d leases", swept, there, leases)
	}
	if left := s.taps(); len(left) != 0 || len(s.guarded()) != 0 || len(s.m.book.all()) != 0 {
		t.Errorf("left: %v, %v, %v", left, s.guarded(), s.m.book.all())
	}
}

func TestSweepRemovesWhatNoVMHasAndRebuildsTheRest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.json")
	s := newSite(t, Options{LeaseFile: file})
	a, b := s.attach(Port{VM: "a", MAC: hw(1)}), s.attach(Port{VM: "b", MAC: hw(2)})
	c := s.attach(Port{VM: "c", MAC: hw(3)})
	s.must(s.host.Run("ip", "link", "delete", c.Tap)) // its rules remain
	half := s.m.o.tapPrefix() + "half"
	s.must(s.host.Run("ip", "tuntap", "add", half, "mode", "tap"))
	queue := open(t, s.host, a.Tap) // QEMU outlives the daemon

	s.m = s.manager(Options{LeaseFile: file})
	swept := s.sweep(func(vm string) bool { return vm == "a" })
	if want := (Swept{Taps: 2, Rules: 2, Leases: 2}); swept != want {
		t.Errorf("%+v, want %+v", swept, want)
	}
	if got := s.guarded(); !slices.Equal(got, []string{a.Tap}) {
		t.Errorf("rules of %v, want %s", got, a.Tap)
	}
	if again := s.sweep(func(vm string) bool { return vm == "a" }); again != (Swept{}) {
		t.Errorf("again: %+v", again)
	}
	if got := s.attach(Port{VM: "a", MAC: hw(1)}); got != a {
		t.Errorf("%+v, was %+v", got, a)
	}
	d := s.attach(Port{VM: "d", MAC: hw(4)})
	if d.IP != b.IP {
		t.Errorf("the address %s was not given back: %s", b.IP, d.IP)
	}
	join(t, queue, open(t, s.host, d.Tap), arp(hw(1), hw(1), a.IP.String(), "10.87.0.50"))
}

// A kernel has room for the rules of a thousand daemons.
func TestADaemonWithoutVMsLeavesNoRules(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	stand := func(want bool, when string) {
		t.Helper()
		var got bool
		s.must(s.do(func() (err error) { got, err = rulesStand(s.m.o); return err }))
		if got != want {
			t.Errorf("%s: there are rules: %v", when, got)
		}
	}
	end := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.must(s.do(func() error { return s.m.Run(ctx) }))
	}
	s.attach(Port{VM: "a", MAC: hw(1)})
	end()
	stand(true, "the daemon has ended, and a VM runs")
	s.must(s.do(func() error { return s.m.Detach(t.Context(), "a") }))
	end()
	stand(false, "the daemon and its last VM have ended")
	s.attach(Port{VM: "a", MAC: hw(1)})
	stand(true, "a VM is back")
	s.must(s.do(func() error { return s.m.Detach(t.Context(), "a") }))
	s.m = s.manager(s.m.o)
	s.sweep(func(string) bool { return false })
	stand(false, "a daemon was killed and starts without VMs")
}

func TestEachStepCanBeSaidTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	p := Port{VM: "a", MAC: hw(1), OwnerUID: 4711}
	a := s.attach(p)
	link, err := s.link(a.Tap)
	s.must(err)
	if tun := link.(*netlink.Tuntap); tun.Owner != 4711 || tun.Flags&netlink.TUNTAP_VNET_HDR == 0 || tun.NonPersist ||
		tun.Alias != "a" {
		t.Errorf("%+v", tun)
	}
	if again := s.attach(p); again != a {
		t.Errorf("%+v, was %+v", again, a)
	}
	same, err := s.link(a.Tap)
	s.must(err)
	if same.Attrs().Index != link.Attrs().Index {
		t.Error("the tap was made anew")
	}
	for _, step := range []func(context.Context, string) error{s.m.Detach, s.m.Detach, s.m.Release, s.m.Release} {
		s.must(s.do(func() error { return step(t.Context(), "a") }))
		if left := s.taps(); len(left) != 0 || len(s.guarded()) != 0 {
			t.Errorf("left: %v, %v", left, s.guarded())
		}
	}
	if got := s.m.Addresses("a"); got != nil {
		t.Errorf("after Release: %v", got)
	}
	p.OwnerUID = 0
	a = s.attach(p)
	link, err = s.link(a.Tap)
	s.must(err)
	if owner := link.(*netlink.Tuntap).Owner; owner != 0 {
		t.Errorf("owner %d, want root, not anybody", owner)
	}
}

func TestVMsThatAreAttachedAtOnceGetDifferentAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	const n = 24
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[netip.Addr]string{}
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprint("vm", i)
			a, err := s.tryAttach(
				Port{VM: id, MAC: hw(byte(i + 1)), IP: netip.MustParseAddr("10.87.0.5")},
			) // all wish the same
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[a.IP] != "" {
				t.Errorf("%s: %s (%q has it), %v", id, a.IP, seen[a.IP], err)
			}
			seen[a.IP] = id
		})
	}
	wg.Wait()
	if got := s.guarded(); len(got) != n {
		t.Errorf("rules of %d", len(got))
	}
}

func TestWhatAttachCannotDoChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.must(s.host.Run("ip", "link", "add", DefaultBridge, "type", "vxlan", "id", "1", "dstport", "0", "dev", "lo"))
	if _, err := s.tryAttach(Port{VM: "a", MAC: hw(1)}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a bridge that is none: %v", err)
	}
	s.must(s.host.Run("ip", "link", "delete", DefaultBridge))
	s.must(s.host.Address("lo", netip.MustParsePrefix("10.87.9.1/24")))
	if _, err := s.tryAttach(Port{VM: "a", MAC: hw(1)}); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "lo") {
		t.Errorf("a network that overlaps: %v", err)
	}
	s.must(s.host.Run("ip", "address", "delete", "10.87.9.1/24", "dev", "lo"))
	if len(s.taps()) != 0 || len(s.guarded()) != 0 || len(s.m.book.all()) != 0 {
		t.Errorf("left: %v, %v, %v", s.taps(), s.guarded(), s.m.book.all())
	}
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	if _, err := s.tryAttach(Port{VM: "b", MAC: hw(1)}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the Ethernet address of another: %v", err)
	}
	if _, err := s.tryAttach(Port{VM: "a", MAC: hw(9), Bridge: "none0"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a bridge that is not there: %v", err)
	}
	if got := s.m.Addresses("a"); len(got) != 1 || got[0] != a.IP || len(s.guarded()) != 1 || len(s.taps()) != 1 {
		t.Errorf("%v, %v, %v", got, s.guarded(), s.taps())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.m.Attach(ctx, Port{VM: "c", MAC: hw(3)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who is gone: %v", err)
	}
}

// withoutRights runs fn on a thread of its own that may change nothing.
func withoutRights(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func TestWithoutRightsItSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.json")
	m, err := New(Options{LeaseFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for name, fn := range map[string]func() error{
		"check":  m.Check,
		"attach": func() error { _, err := m.Attach(t.Context(), Port{VM: "a", MAC: hw(1)}); return err },
		"sweep":  func() error { _, err := m.Sweep(t.Context(), func(string) bool { return true }); return err },
	} {
		if err := withoutRights(fn); !fault.Is(err, fault.Unavailable) ||
			!strings.Contains(err.Error(), "CAP_NET_ADMIN") && !strings.Contains(err.Error(), "modprobe") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := withoutRights(func() error { return m.Detach(t.Context(), "a") }); err != nil {
		t.Errorf("detach, of nothing: %v", err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) || len(m.book.all()) != 0 {
		t.Errorf("something was kept: %v, %v", err, m.book.all())
	}
}

func TestTheServerFindsABridgeThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.run()
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	dhcp(t, s.guest("a", hw(1), a))
	s.must(s.host.Run("ip", "link", "delete", DefaultBridge))
	b := s.attach(Port{VM: "b", MAC: hw(2)})
	if told := dhcp(t, s.guest("b", hw(2), b)); told["ip"] != b.IP.String() {
		t.Errorf("told %v, attached %s", told, b.IP)
	}
}

func TestTheRulesOfThousandsOfVMsAreOneTransaction(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	leases := make([]lease, 5000)
	a := netip.MustParseAddr("10.87.0.2")
	for i := range leases {
		leases[i] = lease{
			VM:     fmt.Sprint("vm", i),
			MAC:    mac{2, 0, 0, 0, byte(i >> 8), byte(i)},
			Bridge: DefaultBridge,
			IP:     a,
		}
		a = a.Next()
	}
	start := time.Now()
	s.must(s.do(func() error { return rebuildRules(s.m.o, s.m.numbers, leases) }))
	t.Logf("made in %v", time.Since(start))
	if n := len(s.guarded()); n != len(leases) {
		t.Errorf("rules of %d VMs", n)
	}
	start = time.Now()
	s.must(s.do(func() error { return changeRules(s.m.o, s.m.numbers, &leases[7], nil) }))
	t.Logf("one removed in %v", time.Since(start))
	if n := len(s.guarded()); n != len(leases)-1 {
		t.Errorf("rules of %d VMs after one was removed", n)
	}
}

func TestOnlyTheOwnerOpensATap(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a := s.attach(Port{VM: "a", MAC: hw(1), OwnerUID: 4711})
	for uid, want := range map[uintptr]error{4711: nil, 4712: unix.EPERM} {
		got := errors.New("not tried")
		// The thread that is another user cannot come back, which Do reports.
		if err := s.do(func() error { got = openAs(uid, a.Tap); return nil }); err == nil {
			t.Fatal("the thread kept its rights")
		}
		if !errors.Is(got, want) {
			t.Errorf("user %d: %v, want %v", uid, got, want)
		}
	}
}

// openAs opens a tap as a user without rights, and makes the calling thread be it.
func openAs(uid uintptr, tap string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0) // which the user may, or is given
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); err != 0 { // of this thread only
		return err
	}
	request, err := unix.NewIfreq(tap)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}
