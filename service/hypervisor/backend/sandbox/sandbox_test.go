//go:build linux

package sandbox_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func TestASandboxRunsTheAgentAndPowersDown(t *testing.T) {
	t.Parallel()
	b := host(t)
	s := vm(t, b, "web-1")
	i := start(t, b, s)
	c := agent(t, i)
	if err := c.Ping(soon(t)); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, c, "hostname; cat /motd"); got != "web-1\nhello" {
		t.Errorf("%q", got)
	}
	// What is left without a parent is reaped.
	sh(t, c, "(sleep 0.01 &)")
	for deadline := time.Now().Add(limit); strings.Contains(sh(t, c, "ps"), "sleep"); {
		if time.Now().After(deadline) {
			t.Fatalf("nobody reaps:\n%s", sh(t, c, "ps"))
		}
	}
	if err := i.PowerDown(soon(t)); err != nil {
		t.Fatal(err)
	}
	if end := ended(t, i); !end.Clean || end.Reason == "" {
		t.Errorf("%+v", end)
	}
	if gone, err := b.Find(soon(t), s); gone != nil || err != nil {
		t.Errorf("found %+v, %v after its end", gone, err)
	}
	again := start(t, b, s) // over what the first left
	if err := again.Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	if end := ended(t, again); end.Clean || end.Reason == "" {
		t.Errorf("%+v", end)
	}
}

func TestTheAgentEndsItsSandbox(t *testing.T) {
	t.Parallel()
	b := host(t)
	i := start(t, b, vm(t, b, "x"))
	c := agent(t, i)
	if err := c.Shutdown(soon(t), wire.Reboot); !guest.IsRefusal(err, wire.Invalid) {
		t.Errorf("reboot: %v", err)
	}
	if err := c.Shutdown(soon(t), wire.PowerOff); err != nil {
		t.Fatal(err)
	}
	if end := ended(t, i); !end.Clean {
		t.Errorf("%+v", end)
	}
}

func TestFilesGoBothWays(t *testing.T) {
	t.Parallel()
	b := host(t)
	c := agent(t, start(t, b, vm(t, b, "x")))
	content := make([]byte, 10<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	if err := c.PutFile(soon(t), "/file", 0o640, int64(len(content)), bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	mode, size, err := c.GetFile(soon(t), "/file", &back)
	if err != nil || mode != 0o640 || size != int64(len(content)) || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("mode %v, %d bytes, %v", mode, size, err)
	}
}

func TestAPausedSandboxStandsStill(t *testing.T) {
	t.Parallel()
	b := host(t)
	i := start(t, b, vm(t, b, "x"))
	c := agent(t, i)
	counts(t, c)
	if paused, err := i.Paused(soon(t)); paused || err != nil {
		t.Errorf("paused %v, %v", paused, err)
	}
	if err := i.Pause(soon(t)); err != nil {
		t.Fatal(err)
	}
	if paused, err := i.Paused(soon(t)); !paused || err != nil {
		t.Errorf("paused %v, %v", paused, err)
	}
	// Nothing in it can say how far it counted, but it spends no time.
	before, err := i.Metrics(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // in which it would spend as much
	after, err := i.Metrics(soon(t))
	if err != nil || after.CPUSeconds-before.CPUSeconds > 0.1 {
		t.Errorf("it spent %v s while paused, %v", after.CPUSeconds-before.CPUSeconds, err)
	}
	if err := i.Checkpoint(soon(t), filepath.Join(t.TempDir(), "checkpoint")); err != nil {
		t.Fatal(err)
	}
	if paused, err := i.Paused(soon(t)); !paused || err != nil {
		t.Errorf("paused %v after a checkpoint, %v", paused, err)
	}
	if err := i.Resume(soon(t)); err != nil {
		t.Fatal(err)
	}
	growing(t, c)
}

// counts starts a program that counts, as fast as it can, in memory and, every now and
// then, in /count.
func counts(t *testing.T, c *guest.Client) {
	t.Helper()
	script := `n=0; while true; do n=$((n+1)); [ $((n % 1000)) -ne 0 ] || echo $n > /count.new && [ -e /count.new ] && busybox mv /count.new /count; done`
	if _, err := c.Exec(soon(t), guest.Command{Argv: []string{"sh", "-c", script}, Detach: true}); err != nil {
		t.Fatal(err)
	}
	growing(t, c)
}

// growing waits until the count has grown, and returns it.
func growing(t *testing.T, c *guest.Client) int {
	t.Helper()
	count := func() int {
		n, _ := strconv.Atoi(sh(t, c, "cat /count 2>/dev/null || echo 0"))
		return n
	}
	first := count()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if n := count(); n > first {
			return n
		}
	}
	t.Fatalf("it does not count on from %d", first)
	return 0
}

func TestACheckpointKeepsMemoryAndTheSandboxGoesOn(t *testing.T) {
	t.Parallel()
	b := host(t)
	s := vm(t, b, "x")
	i := start(t, b, s)
	c := agent(t, i)
	counts(t, c)
	sh(t, c, "echo before > /written")
	n := growing(t, c)
	folder := filepath.Join(t.TempDir(), "checkpoint")
	if err := i.Checkpoint(soon(t), folder); err != nil {
		t.Fatal(err)
	}
	if err := i.Checkpoint(soon(t), folder); !fault.Is(err, fault.Conflict) {
		t.Errorf("over another one: %v", err)
	}
	if err := c.Ping(soon(t)); err != nil { // the same session
		t.Errorf("the agent after the checkpoint: %v", err)
	}
	growing(t, c)
	sh(t, c, "echo after > /written")

	// In a VM of its own, beside the first.
	copied := vm(t, b, "y")
	j, err := b.Restore(soon(t), copied, folder)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	d := agent(t, j)
	if got := sh(t, d, "cat /written"); got != "before" {
		t.Errorf("written is %q", got)
	}
	if m := growing(t, d); m < n {
		t.Errorf("it counts from %d, and was at %d", m, n)
	}
	if got := sh(t, c, "cat /written"); got != "after" {
		t.Errorf("written is %q in the first one", got)
	}
	if _, err := b.Restore(soon(t), vm(t, b, "z"), "/nowhere"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, "checkpoint.img"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Restore(soon(t), vm(t, b, "z"), damaged); err == nil {
		t.Error("a damaged checkpoint was restored")
	}
}

func TestSandboxesOfOneRootFileSystemDoNotSeeEachOthersWrites(t *testing.T) {
	t.Parallel()
	b := host(t)
	before := tree(t)
	one, two := agent(t, start(t, b, vm(t, b, "one"))), agent(t, start(t, b, vm(t, b, "two")))
	sh(t, one, "echo mine > /motd; echo 1 > /one; echo 2 > /tmp/one")
	if got := sh(t, two, "cat /motd; ls / /tmp"); !strings.HasPrefix(got, "hello") || strings.Contains(got, "one") {
		t.Errorf("the other one sees %q", got)
	}
	if got := sh(t, one, "cat /motd"); got != "mine" {
		t.Errorf("%q", got)
	}
	if after := tree(t); after != before {
		t.Errorf("the shared root file system changed from %s to %s", before, after)
	}
	for _, path := range []string{"/.mainstay/mainstay-guest", "/run/mainstay-guest/secret"} {
		var said strings.Builder
		exit, err := one.Exec(soon(t), guest.Command{Argv: []string{"sh", "-c", "echo x > " + path}, Stderr: &said})
		if err != nil || exit.Code == 0 {
			t.Errorf("%s can be written: %+v, %v", path, exit, err)
		}
	}
}

// tree lists the shared root file system.
func tree(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(rootFS(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all.WriteString(
				strings.Join([]string{path, info.ModTime().String(), strconv.FormatInt(info.Size(), 10)}, " ") + "\n",
			)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestTheConsoleIsAShellOnATerminalThatHangsUp(t *testing.T) {
	t.Parallel()
	b := host(t)
	i := start(t, b, vm(t, b, "x"))
	stream, err := i.Dial(soon(t), backend.ConsoleChannel)
	if err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(limit, func() { _ = stream.Close() })
	defer stop.Stop()
	if _, err := io.WriteString(stream, "[ -t 0 ] && [ -t 1 ] && echo 4$((1+1)); sleep 1234\n"); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for b := make([]byte, 4096); !strings.Contains(seen.String(), "\n42\r\n"); {
		n, err := stream.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(b[:n])
	}
	c := agent(t, i)
	has := func(what string) bool { return strings.Contains(sh(t, c, "ps"), what) }
	for deadline := time.Now().Add(limit); !has("sleep 1234"); {
		if time.Now().After(deadline) {
			t.Fatal("the command does not run")
		}
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(limit); has("sleep 1234") || has("/bin/sh"); {
		if time.Now().After(deadline) {
			t.Fatalf("the shell goes on:\n%s", sh(t, c, "ps"))
		}
	}
	if _, err := i.Dial(soon(t), backend.ScreenChannel); !fault.Is(err, fault.Conflict) {
		t.Errorf("a screen: %v", err)
	}
	if _, err := i.Dial(soon(t), "x"); !fault.Is(err, fault.NotFound) {
		t.Errorf("another channel: %v", err)
	}
}

func TestSessionsOfTheAgentEndWithTheirStreamAndSayWhyTheyDoNotStart(t *testing.T) {
	t.Parallel()
	b := host(t)
	s := vm(t, b, "x")
	i := start(t, b, s)
	c := agent(t, i)
	for range 3 {
		other := agent(t, i)
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(limit); strings.Count(sh(t, c, "ps"), "-guest relay") != 1; {
		if time.Now().After(deadline) {
			t.Fatalf("sessions go on:\n%s", sh(t, c, "ps"))
		}
	}
	// The program that carried a session ends a moment after its end in the guest.
	for deadline := time.Now().Add(limit); len(running(t, s.Folder)) != 2; {
		if time.Now().After(deadline) {
			t.Fatalf("beside the sandbox and its gofer there are %v", running(t, s.Folder))
		}
	}
	if err := i.Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	ended(t, i)
	stream, err := i.Dial(soon(t), backend.AgentChannel)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Connect(soon(t), stream, secret); !errors.Is(err, guest.ErrLost) ||
		!strings.Contains(err.Error(), "did not start") {
		t.Errorf("a session of a sandbox that has ended: %v", err)
	}
}

func TestWhatAGuestWritesIsBounded(t *testing.T) {
	t.Parallel()
	host(t)
	b := sandbox.New(sandbox.Options{Agent: agentProgram(), WritableMiB: 16})
	s := vm(t, b, "x")
	c := agent(t, start(t, b, s))
	for path, limit := range map[string]int{"/file": 16 << 20, "/tmp/file": s.MemoryMiB << 20 / 2, "/dev/shm/file": s.MemoryMiB << 20 / 2} {
		size, err := strconv.Atoi(
			sh(
				t, c,
				"dd if=/dev/zero of="+path+" bs=1M count=100 2>/dev/null; busybox stat -c %s "+path+"; busybox rm "+path,
			),
		)
		if err != nil || size > limit || size < limit/2 {
			t.Errorf("%s got %d bytes of at most %d, %v", path, size, limit, err)
		}
	}
}

func TestMetricsSayWhatTheGuestUses(t *testing.T) {
	t.Parallel()
	b := host(t)
	i := start(t, b, vm(t, b, "x"))
	c := agent(t, i)
	before, err := i.Metrics(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	sh(
		t, c,
		"dd if=/dev/zero of=/tmp/file bs=1M count=40 2>/dev/null; n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done",
	)
	after, err := i.Metrics(soon(t))
	// The sandbox may have given back some of what it took to start, so the difference may be less than
	// the file.
	if err != nil || after.CPUSeconds <= before.CPUSeconds || after.MemoryBytes < 40<<20 ||
		after.MemoryBytes-before.MemoryBytes < 30<<20 || after.MemoryBytes > 400<<20 {
		t.Errorf("from %+v to %+v, %v", before, after, err)
	}
}

func TestTenSandboxesStartAtOnce(t *testing.T) {
	t.Parallel()
	b := host(t)
	var all sync.WaitGroup
	for range 10 {
		s := vm(t, b, "x")
		all.Go(func() {
			i, err := b.Start(soon(t), s)
			if err != nil {
				t.Error(err)
				return
			}
			defer i.Close()
			stream, err := i.Dial(soon(t), backend.AgentChannel)
			if err != nil {
				t.Error(err)
				return
			}
			c, err := guest.Connect(soon(t), stream, secret)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if err := c.Ping(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
