//go:build linux

package bgp_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// The tests run in a network namespace of their own, joined by a cable to a second
// one in which the routers run. Both go away with the process that holds them.
//
//	speaker: 10.9.0.254, 2001:db8:9::fe ──── routers: 10.9.0.1 and on, 2001:db8:9::1 and on

const insideVariable = "MAINSTAY_BGP_TEST_NAMESPACE"

// routerSpace is where routers run, and noRouters why they cannot.
var (
	routerSpace *netlab.Host
	noRouters   error
)

func TestMain(m *testing.M) {
	if work := os.Getenv(processVariable); work != "" {
		if err := speak(work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
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

func layCable() (*netlab.Host, error) {
	here, err := netlab.Here()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	routers, err := netlab.NewHost("routers")
	if err != nil {
		return nil, err
	}
	if err := netlab.Join(here, "routers", routers, "speaker"); err != nil {
		return nil, err
	}
	var addresses []netip.Prefix
	for n := 1; n <= maxRouters; n++ {
		addresses = append(addresses, address4(n), address6(n))
	}
	return routers, errors.Join(
		here.Address("routers", address4(254), address6(254)), routers.Address("speaker", addresses...),
	)
}

func address4(host int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", host))
}

func address6(host int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:9::%x/64", host))
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
	if err := routerSpace.Start(program); err != nil {
		t.Fatal(err)
	}
}
