//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// daemonFolder makes this program a daemon that starts the sandbox in the folder, says so,
// and then stops it or waits for its own end, as the other variable says.
const (
	daemonFolder = "MAINSTAY_SANDBOX_TEST_FOLDER"
	daemonBuilt  = "MAINSTAY_SANDBOX_TEST_BUILT"
	daemonStops  = "MAINSTAY_SANDBOX_TEST_STOPS"
)

func daemon(folder string) int {
	ctx := context.Background()
	built.folder = os.Getenv(daemonBuilt)
	b := sandbox.New(sandbox.Options{Agent: agentProgram()})
	s := specOf(folder, rootFS())
	i, err := b.Start(ctx, s)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, i.PID())
	if os.Getenv(daemonStops) == "" {
		return 0
	}
	if err := i.Kill(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
		return 1
	}
	<-i.Done()
	if err := b.Clean(ctx, s); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
		return 1
	}
	return 0
}

func daemonOf(t *testing.T, s *backend.Spec, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(soon(t), os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(append(os.Environ(), daemonFolder+"="+s.Folder, daemonBuilt+"="+built.folder), env...)
	return cmd
}

func TestASandboxOutlivesTheDaemonAndIsFoundAgain(t *testing.T) {
	t.Parallel()
	b := host(t)
	s := vm(t, b, "vm")
	said, err := daemonOf(t, s).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	i, err := sandbox.New(sandbox.Options{Agent: agentProgram()}).Find(soon(t), s)
	if err != nil || i == nil || fmt.Sprintln(i.PID()) != string(said) {
		t.Fatalf("found %+v, %v; the daemon said %s", i, err, said)
	}
	if err := agent(t, i).Ping(soon(t)); err != nil {
		t.Error(err)
	}
	if err := i.PowerDown(soon(t)); err != nil {
		t.Fatal(err)
	}
	if end := ended(t, i); !end.Clean {
		t.Errorf("%+v", end)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// Wherever the daemon dies while it starts and ends a sandbox, the next one either finds
// the sandbox or cleans up, and can start it anew.
func TestADaemonThatDiesAtAnyMomentLeavesNothingThatCannotBeCleaned(t *testing.T) {
	t.Parallel()
	b := host(t)
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		s := vm(t, b, "vm")
		cmd := daemonOf(t, s, daemonStops+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rand.IntN(300)) * time.Millisecond //nolint:gosec // no secret
		time.Sleep(after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		i, err := b.Find(soon(t), s)
		if err != nil {
			t.Fatalf("after %v: %v", after, err)
		}
		if i != nil {
			_ = i.Close()
		}
		// Runs of runsc that the daemon began may be under way yet.
		if err := b.Clean(soon(t), s); err != nil {
			t.Fatalf("after %v: %v", after, err)
		}
		nothingLeft(t, s)
		again := start(t, b, s)
		if err := again.Kill(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStartThatFailsOrIsBrokenOffLeavesNothing(t *testing.T) {
	t.Parallel()
	b := host(t)
	s := vm(t, b, "vm")
	s.RootFS = t.TempDir() // in which a folder is in the place of the agent
	if err := os.MkdirAll(filepath.Join(s.RootFS, ".mainstay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(s.RootFS, "proc")); err != nil {
		t.Fatal(err)
	}
	if i, err := b.Start(soon(t), s); err == nil {
		t.Logf("%v", i.Close())
	} else if !strings.Contains(err.Error(), "runsc run") {
		t.Errorf("%v", err)
	}
	s.RootFS = rootFS()
	for _, after := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond} {
		if err := b.Clean(soon(t), s); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), after)
		i, err := b.Start(short, s)
		cancel()
		if err == nil {
			_ = i.Close()
			continue // a fast machine
		}
		nothingLeft(t, s)
	}
}

// Another VM's processes, and those that only mention the folder, are not swept.
func TestCleaningOneSandboxLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	b := host(t)
	one, two := vm(t, b, "one"), vm(t, b, "two")
	i, j := start(t, b, one), start(t, b, two)
	bystander := exec.CommandContext(soon(t), "tail", "-f", "/dev/null", filepath.Join(one.Folder, "secret"))
	out, err := bystander.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line == "" {
		t.Fatalf("%q, %v", line, err)
	}
	// gVisor runs this in a process of the host that shows no arguments.
	sleeping := guest.Command{Argv: []string{"sleep", "300"}, Detach: true}
	if _, err := agent(t, j).Exec(soon(t), sleeping); err != nil {
		t.Fatal(err)
	}
	quickly, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.Clean(quickly, one); err != nil {
		t.Fatal(err)
	}
	ended(t, i)
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that only read a file of the VM's: %v", err)
	}
	_ = bystander.Process.Kill()
	_ = bystander.Wait()
	if err := agent(t, j).Ping(soon(t)); err != nil {
		t.Errorf("the other sandbox: %v", err)
	}
	if again, err := b.Find(soon(t), two); err != nil || again == nil {
		t.Errorf("%+v, %v", again, err)
	} else {
		_ = again.Close()
	}
}
