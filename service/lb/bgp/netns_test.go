package bgp_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/mainstay-infra/mainstay/kit/require"
)

// The tests run in a network namespace of their own, joined by a cable to a second
// one in which the routers run. Both go away with the process that holds them.
//
//	speaker: 10.9.0.254, 2001:db8:9::fe ──── routers: 10.9.0.1 and on, 2001:db8:9::1 and on

const insideVariable = "MAINSTAY_BGP_TEST_NAMESPACE"

// routerSpace is where routers run, and noRouters why they cannot.
var (
	routerSpace netns.NsHandle
	noRouters   error
)

func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) == "" && os.Getuid() == 0 {
		if code, ok := runInNamespace(); ok {
			os.Exit(code)
		}
	}
	noRouters = errors.New("no permission to make network namespaces")
	if os.Getenv(insideVariable) != "" {
		routerSpace, noRouters = layCable()
	}
	os.Exit(m.Run())
}

// runInNamespace runs this program again, in a namespace of its own; ok is false if
// there may be none. A whole process is needed: threads of Go's runtime that are in
// another namespace cannot be kept apart.
func runInNamespace() (code int, ok bool) {
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Args[0] = os.Args[0]
	again.Env = append(os.Environ(), insideVariable+"=1")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // whose death would be that of the child
	defer runtime.UnlockOSThread()
	if err := again.Start(); err != nil {
		return 0, false
	}
	err := again.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return again.ProcessState.ExitCode(), true
}

const maxRouters = 40

func layCable() (netns.NsHandle, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return 0, err
	}
	there, err := netns.New()
	if err != nil {
		return 0, err
	}
	if err := netns.Set(here); err != nil {
		return 0, err
	}
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "routers"}, PeerName: "speaker", PeerNamespace: netlink.NsFd(there)}
	if err := netlink.LinkAdd(cable); err != nil {
		return 0, err
	}
	if err := up(&netlink.Handle{}, "routers", address(254, 24), address6(254, 64)); err != nil {
		return 0, err
	}
	handle, err := netlink.NewHandleAt(there)
	if err != nil {
		return 0, err
	}
	defer handle.Close()
	var routers []*net.IPNet
	for n := 1; n <= maxRouters; n++ {
		routers = append(routers, address(byte(n), 24), address6(byte(n), 64))
	}
	return there, up(handle, "speaker", routers...)
}

func address(host byte, bits int) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(10, 9, 0, host), Mask: net.CIDRMask(bits, 32)}
}

func address6(host byte, bits int) *net.IPNet {
	return &net.IPNet{IP: net.IP{0x20, 0x01, 0x0d, 0xb8, 0, 9, 15: host}, Mask: net.CIDRMask(bits, 128)}
}

func up(h *netlink.Handle, name string, addresses ...*net.IPNet) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		// Nobody else can have the address, so nobody needs to be asked.
		if err := h.AddrAdd(link, &netlink.Addr{IPNet: a, Flags: syscall.IFA_F_NODAD}); err != nil {
			return err
		}
	}
	return h.LinkSetUp(link)
}

var routers atomic.Int32

// nextRouter is the number of a router that no other test uses.
func nextRouter(t *testing.T) int {
	t.Helper()
	if noRouters != nil {
		require.Missing(t, "routers need network namespaces: %v", noRouters)
	}
	n := routers.Add(1)
	if n > maxRouters {
		t.Fatal("more routers than addresses")
	}
	return int(n)
}

// startInside starts a program in the namespace of the routers. It is gone when the
// test is over.
func startInside(t *testing.T, program *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := netns.Set(routerSpace); err != nil {
		t.Fatal(err)
	}
	startErr := program.Start() // a child is in the namespace of the thread that starts it
	if err := netns.Set(here); err != nil {
		panic(err) // this thread must not run anything else
	}
	if startErr != nil {
		t.Fatal(startErr)
	}
}
