//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
)

// lbDemo is a run of the demonstration, on a machine of its own as far as the network
// goes, and with a folder of its own for what it leaves.
type lbDemo struct {
	*testing.T
	machine *netlab.Host
	folder  string
	before  []string
	process *process
}

func startDemo(t *testing.T, args ...string) *lbDemo {
	t.Helper()
	machine, err := netlabtest.New(t).Host("machine")
	if err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	d := &lbDemo{T: t, machine: machine, folder: t.TempDir()}
	d.before = d.links()
	cmd := exec.Command(path, append([]string{"lb", "demo"}, args...)...)
	cmd.SysProcAttr = dieWithParent()
	d.process = launchCommand(t, []string{"TMPDIR=" + d.folder}, cmd, machine.Start)
	return d
}

func (d *lbDemo) links() (names []string) {
	d.Helper()
	all, err := d.machine.Netlink().LinkList()
	if err != nil {
		d.Fatal(err)
	}
	for _, l := range all {
		names = append(names, l.Attrs().Name)
	}
	return names
}

// running are the processes that were started with something of the demonstration's
// folder, which its daemon is.
func (d *lbDemo) running() (found []int) {
	d.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.Fatal(err)
	}
	for _, path := range commands {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), d.folder) { // else it is over
			var id int
			if _, err := fmt.Sscanf(path, "/proc/%d/", &id); err != nil {
				d.Fatal(err)
			}
			found = append(found, id)
		}
	}
	return found
}

// namespaces are the network namespaces that the demonstration has a hold of.
func (d *lbDemo) namespaces() (found []string) {
	d.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.process.cmd.Process.Pid))
	if err != nil {
		d.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "net:") { // else it was closed
			found = append(found, target)
		}
	}
	return found
}

// leavesNothing checks what is there after the end.
func (d *lbDemo) leavesNothing(namespaces []string) {
	d.Helper()
	if left, err := os.ReadDir(d.folder); err != nil || len(left) > 0 {
		d.Errorf("it left files: %v %v", left, err)
	}
	if left := d.running(); len(left) > 0 {
		d.Errorf("it left processes: %v", left)
	}
	if after := d.links(); !slices.Equal(after, d.before) {
		d.Errorf("the devices were %v and are %v", d.before, after)
	}
	// A namespace without a process lasts as long as it is mounted, as those of "ip netns" are.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		d.Fatal(err)
	}
	for _, namespace := range namespaces {
		if strings.Contains(string(mounts), " "+namespace+" ") {
			d.Errorf("it left the namespace %s", namespace)
		}
	}
}

func TestLoadBalancerDemoTellsItsStoryInEachMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"nat", "dsr"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := startDemo(t, "--mode", mode, "--once", "--step", "1s")
			if code := d.process.wait(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			printed := d.process.output.String()
			for _, says := range []string{"One VIP 10.99.9.9:80 in mode " + mode + ", three backends", "Console: http://127.0.0.1:9870 ", "1. All backends share", "2. Backend b1 gets weight 3", "3. Back to equal weights, and b2 is drained",
				"4. b2 is undrained", "5. b3 is killed", "6. b3 is started again", "It was out of service after ", "It was back after ", "Cleaning up."} {
				if !strings.Contains(printed, says) {
					t.Errorf("it does not say %q", says)
				}
			}
			// A line for each second: for each backend, new connections and how many stay open.
			line := regexp.MustCompile(
				`(?m)^ +b1 \S* +(\d+) \[\d\] +b2 \S* +(\d+) \[\d\] +b3 \S* +(\d+) \[\d\] +failed (\d+), broken (\d+)$`,
			)
			steps := regexp.MustCompile(`(?m)^\d\. .*$`).Split(printed, -1)
			if len(steps) != 7 {
				t.Fatalf("%d steps:\n%s", len(steps)-1, printed)
			}
			for i, step := range steps[1:] {
				lines := line.FindAllStringSubmatch(step, -1)
				if len(lines) == 0 {
					t.Fatalf("step %d has no lines:\n%s", i+1, printed)
				}
				last := lines[len(lines)-1]
				b2drained, b3killed := i == 2, i == 4
				if (last[2] == "0") != b2drained || (last[3] == "0") != b3killed || last[1] == "0" {
					t.Errorf("step %d: %s", i+1, last[0])
				}
				if last[5] != "0" {
					t.Errorf("step %d broke connections: %s", i+1, last[0])
				}
			}
			d.leavesNothing(nil)
		})
	}
}

func TestLoadBalancerDemoThatIsInterruptedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]string{"in the middle": `(?s)2\. Backend b1 gets weight 3.*failed`, "at its start": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDemo(t, "--step", "1s")
			var namespaces []string
			if moment == "" {
				// Once the daemon is there.
				eventually(t, "the daemon was started", func() bool { return len(d.running()) > 0 })
			} else if _, ok := d.process.awaitOutput(regexp.MustCompile(moment)); !ok {
				t.Fatal("it ended by itself")
			}
			if namespaces = d.namespaces(); len(namespaces) < 5 {
				t.Errorf("it has %v, and there is a client, a balancer and three backends", namespaces)
			}
			if err := d.process.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if code := d.process.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			d.leavesNothing(namespaces)
		})
	}
}
