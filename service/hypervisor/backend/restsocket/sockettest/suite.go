//go:build linux

package sockettest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// Test is what each backend must do.
func (h Host) Test(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a VM lives and its guest is reached":                       h.life,
		"a VM can be killed and started again":                      h.again,
		"a guest that ends the program by itself is told apart":     h.ends,
		"a VM outlives the daemon and is found again":               h.outlives,
		"the end is known to a daemon that did not launch the VM":   h.endsForOthers,
		"a start that fails leaves nothing":                         h.fails,
		"a daemon that died before it noted the process is no harm": h.unnoted,
		"cleaning one VM leaves others alone":                       h.alone,
		"hostile answers end and are named":                         h.hostile,
		"a socket of another process is not spoken to":              h.impostor,
		"what a VM has not is a conflict":                           h.lacks,
		"a start that was broken off is not a VM":                   h.brokenOff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// VM is a VM of a backend with these settings, of which nothing is left after the test.
func (h Host) VM(t testing.TB, s Settings) (backend.Backend, *backend.Spec, string) {
	t.Helper()
	programs := h.Install(t, s)
	// Longer than the path of a socket can be.
	folder := filepath.Join(Folder(t), strings.Repeat("long", 30))
	if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // the VM may be another user's
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	b, spec := h.Backend(programs), h.Spec(folder)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Limit)
		defer cancel()
		if err := b.Clean(ctx, spec); err != nil {
			t.Error(err)
		}
		NothingLeft(t, spec, programs)
	})
	return b, spec, programs
}

// NothingLeft looks for what a VM could have left on the host.
func NothingLeft(t testing.TB, s *backend.Spec, programs string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if raw, err := os.ReadFile(line); err == nil &&
			bytes.HasPrefix(raw, []byte(programs)) { //nolint:gosec // the kernel's
			t.Errorf("a process is left: %s", bytes.ReplaceAll(raw, []byte{0}, []byte(" ")))
		}
	}
	entries, err := os.ReadDir(s.Folder)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "file-") {
			t.Errorf("%s is left in the VM's folder", e.Name())
		}
	}
	if jails, err := filepath.Glob(filepath.Join(programs, "jails", "*", "*")); err != nil || len(jails) > 0 {
		t.Errorf("a jail is left: %v, %v", jails, err)
	}
}

// File makes a file in the folder of a VM that a Spec can name.
func File(folder, name, content string, uid int) string {
	path := filepath.Join(folder, "file-"+name)
	if _, err := os.Lstat(path); err == nil {
		return path
	}
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chown(path, uid, uid)); err != nil {
		panic(err)
	}
	return path
}

// Soon is a context for what takes a fraction of a second.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Start starts a VM that must come up.
func Start(t testing.TB, b backend.Backend, s *backend.Spec) backend.Instance {
	t.Helper()
	i, err := b.Start(Soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

// Ended waits for the end of a VM.
func Ended(t testing.TB, i backend.Instance) backend.End {
	t.Helper()
	select {
	case <-i.Done():
		return i.Ended()
	case <-time.After(Limit):
		t.Fatal("the VM has not ended")
		return backend.End{}
	}
}

// Type types a line on the console of a VM.
func Type(t testing.TB, i backend.Instance, line string) (answer *bufio.Reader) {
	t.Helper()
	stream, err := i.Dial(Soon(t), backend.ConsoleChannel)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	context.AfterFunc(Soon(t), func() { _ = stream.Close() })
	if _, err := fmt.Fprintln(stream, line); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(stream)
}

func agentOf(t testing.TB, i backend.Instance) *guest.Client {
	t.Helper()
	stream, err := i.Dial(Soon(t), backend.AgentChannel)
	if err != nil {
		t.Fatal(err)
	}
	c, err := guest.Connect(Soon(t), stream, Secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func isPaused(t testing.TB, i backend.Instance, want bool) {
	t.Helper()
	if paused, err := i.Paused(Soon(t)); err != nil || paused != want {
		t.Errorf("paused: %t, %v; want %t", paused, err, want)
	}
}

func (h Host) life(t *testing.T) {
	b, s, _ := h.VM(t, Settings{})
	i := Start(t, b, s)
	isPaused(t, i, false)
	c := agentOf(t, i)
	if err := c.Ping(Soon(t)); err != nil {
		t.Error(err)
	}
	if h.Jail == "" { // a jail has no programs
		var out bytes.Buffer
		exit, err := c.Exec(Soon(t), guest.Command{
			Argv:   []string{"/bin/sh", "-c", "cat; exit 3"},
			Stdin:  strings.NewReader("hello"),
			Stdout: &out,
		})
		if err != nil || exit.Code != 3 || out.String() != "hello" {
			t.Errorf("%+v, %v, %q", exit, err, out.String())
		}
	}
	if line, err := Type(t, i, "say good day").ReadString('\n'); err != nil || line != "good day\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	for range 2 {
		if err := i.Pause(Soon(t)); err != nil {
			t.Error(err)
		}
		isPaused(t, i, true)
		if err := i.Resume(Soon(t)); err != nil {
			t.Error(err)
		}
		isPaused(t, i, false)
	}
	if button, ok := i.(backend.Resetter); ok {
		if err := button.Reset(Soon(t)); err != nil {
			t.Error(err)
		}
		isPaused(t, i, false)
	}
	if m, err := i.Metrics(Soon(t)); err != nil || m.MemoryBytes == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if err := i.PowerDown(Soon(t)); err != nil {
		t.Fatal(err)
	}
	if end := Ended(t, i); !end.Clean || end.Reason != "the guest powered off" {
		t.Errorf("%+v", end)
	}
	if _, err := i.Paused(Soon(t)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a call after the end: %v", err)
	}
	if found, err := b.Find(Soon(t), s); found != nil || err != nil {
		t.Errorf("found %v, %v after the end", found, err)
	}
}

func (h Host) again(t *testing.T) {
	b, s, _ := h.VM(t, Settings{})
	for range 2 {
		i := Start(t, b, s)
		if err := i.Kill(Soon(t)); err != nil {
			t.Fatal(err)
		}
		if end := Ended(t, i); !end.Clean || !strings.Contains(end.Reason, "killed") {
			t.Errorf("%+v", end)
		}
	}
}

func (h Host) ends(t *testing.T) {
	b, s, _ := h.VM(t, Settings{})
	i := Start(t, b, s)
	Type(t, i, "poweroff")
	if end := Ended(t, i); !end.Clean {
		t.Errorf("%+v", end)
	}
	i = Start(t, b, s)
	Type(t, i, "crash")
	if end := Ended(t, i); end.Clean || !strings.Contains(end.Reason, "the fake crashed") {
		t.Errorf("%+v", end)
	}
}

// leftBehind starts a VM by a daemon that is killed then, and finds it.
func (h Host) leftBehind(t *testing.T) (backend.Instance, *backend.Spec, backend.Backend) {
	t.Helper()
	b, s, programs := h.VM(t, Settings{})
	daemon := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") //nolint:gosec // this program
	daemon.Env = append(append(os.Environ(), h.Environment...), daemonVM+"="+s.Folder, daemonPrograms+"="+programs)
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	if err != nil {
		t.Fatal(said, err)
	}
	i, err := b.Find(Soon(t), s)
	if err != nil || i == nil || fmt.Sprintln(i.PID()) != said {
		t.Fatalf("found %v, %v; the daemon said %s", i, err, said)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i, s, b
}

func (h Host) outlives(t *testing.T) {
	i, s, b := h.leftBehind(t)
	if err := agentOf(t, i).Ping(Soon(t)); err != nil {
		t.Error(err)
	}
	if line, err := Type(t, i, "say still here").ReadString('\n'); err != nil || line != "still here\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	isPaused(t, i, false)
	// A daemon that ends in good order lets go, and the next one finds it, too.
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	j, err := b.Find(Soon(t), s)
	if err != nil || j == nil {
		t.Fatal(j, err)
	}
	defer func() { _ = j.Close() }()
	if err := j.Kill(Soon(t)); err != nil {
		t.Fatal(err)
	}
	if end := Ended(t, j); !end.Clean {
		t.Errorf("%+v", end)
	}
}

func (h Host) endsForOthers(t *testing.T) {
	for line, clean := range map[string]bool{"poweroff": true, "crash": false} {
		i, _, _ := h.leftBehind(t)
		Type(t, i, line)
		if end := Ended(t, i); end.Clean != clean {
			t.Errorf("%s: %+v", line, end)
		}
	}
}

func (h Host) fails(t *testing.T) {
	for _, s := range []Settings{{Refuse: h.First}, {Refuse: h.Last}, {Mode: "deaf"}, {Mode: "silent"}, {Mode: "early"}} {
		b, spec, programs := h.VM(t, s)
		ctx := Soon(t)
		if s.Mode == "deaf" || s.Mode == "silent" {
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			ctx = short
		}
		i, err := b.Start(ctx, spec)
		if i != nil || err == nil {
			t.Fatalf("%+v: it started", s)
		}
		if s.Refuse != "" && (!fault.Is(err, fault.Conflict) || !strings.Contains(fault.From(err).Message, Refusal)) {
			t.Errorf("%+v: %v", s, err)
		}
		if s.Mode == "early" && !strings.Contains(err.Error(), "the fake ended early") {
			t.Errorf("%+v: %v", s, err)
		}
		NothingLeft(t, spec, programs)
	}
}

func (h Host) unnoted(t *testing.T) {
	b, s, _ := h.VM(t, Settings{})
	for _, damage := range []func() error{
		func() error { return os.Remove(filepath.Join(s.Folder, process.RecordFile)) },
		func() error { return os.WriteFile(filepath.Join(s.Folder, process.RecordFile), []byte("{"), 0o600) },
	} {
		i := Start(t, b, s)
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if err := b.Clean(Soon(t), s); err != nil {
			t.Fatal(err)
		}
		Ended(t, i)
	}
}

func (h Host) alone(t *testing.T) {
	b, one, _ := h.VM(t, Settings{})
	c, two, _ := h.VM(t, Settings{})
	Start(t, b, one)
	j := Start(t, c, two)
	if err := b.Clean(Soon(t), one); err != nil {
		t.Fatal(err)
	}
	isPaused(t, j, false)
}

func (h Host) hostile(t *testing.T) {
	faults := map[string]string{"garbage": "not as documented", "huge": "longer than", "endless": "deadline"}
	for mode, named := range faults {
		b, s, _ := h.VM(t, Settings{Mode: mode})
		i := Start(t, b, s)
		ctx := Soon(t)
		if mode == "endless" {
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			ctx = short
		}
		if _, err := i.Paused(ctx); err == nil || !strings.Contains(err.Error(), named) ||
			strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func (h Host) impostor(t *testing.T) {
	b, s, programs := h.VM(t, Settings{})
	i := Start(t, b, s)
	pattern := filepath.Join(s.Folder, "run")
	if h.Jail != "" {
		pattern = filepath.Join(programs, h.Jail, "run")
	}
	runs, err := filepath.Glob(pattern)
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	for _, name := range []string{"api.sock", "vsock.sock"} {
		if err := os.Remove(filepath.Join(runs[0], name)); err != nil {
			t.Fatal(err)
		}
		folder, err := os.Open(runs[0])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = folder.Close() }()
		l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
	}
	if _, err := i.Paused(Soon(t)); err == nil || !strings.Contains(err.Error(), "not its own") {
		t.Errorf("%v", err)
	}
	if _, err := i.Dial(Soon(t), backend.AgentChannel); err == nil || !strings.Contains(err.Error(), "not its own") {
		t.Errorf("%v", err)
	}
}

func (h Host) lacks(t *testing.T) {
	b, s, _ := h.VM(t, Settings{})
	s.Agent = false
	i := Start(t, b, s)
	for _, c := range []backend.Channel{backend.ScreenChannel, backend.AgentChannel} {
		if _, err := i.Dial(Soon(t), c); !fault.Is(err, fault.Conflict) || fault.From(err).Code != "no_"+string(c) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// A daemon that died between the launch and the last call leaves a program without a VM.
func (h Host) brokenOff(t *testing.T) {
	b, s, programs := h.VM(t, Settings{})
	if err := h.HalfStart(b, s); err != nil {
		t.Fatal(err)
	}
	if i, err := b.Find(Soon(t), s); i != nil || err != nil {
		t.Errorf("%v, %v", i, err)
	}
	NothingLeft(t, s, programs)
}

// Real is what a real program must do, whatever its guest does.
func Real(t *testing.T, b backend.Backend, s *backend.Spec) {
	t.Helper()
	defer func() {
		if err := b.Clean(context.Background(), s); err != nil {
			t.Error(err)
		}
	}()
	i := Start(t, b, s)
	if err := i.Pause(Soon(t)); err != nil {
		t.Error(err)
	}
	isPaused(t, i, true)
	if err := i.Resume(Soon(t)); err != nil {
		t.Error(err)
	}
	isPaused(t, i, false)
	if _, err := i.Metrics(Soon(t)); err != nil {
		t.Error(err)
	}
	if err := i.Kill(Soon(t)); err != nil {
		t.Fatal(err)
	}
	Ended(t, i)
}
