//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func shell(script string) []string { return []string{"sh", "-c", script} }

func TestAProcessHasItsInputOutputsAndExit(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	exit, err := newClient(t).Exec(within(t, 30*time.Second), guest.Command{
		Argv: shell(
			`pwd; echo $A $B $HOME; cat; echo bad >&2; exit 3`,
		),
		Env:    []string{"A=1", "B=2", "HOME=/nowhere"},
		Dir:    "/usr",
		Stdin:  strings.NewReader("input"),
		Stdout: &out,
		Stderr: &errs,
	})
	if err != nil || exit.Code != 3 || exit.Signal != "" || exit.TimedOut || exit.Truncated || exit.PID < 2 {
		t.Errorf("%+v, %v", exit, err)
	}
	if out.String() != "/usr\n1 2 /nowhere\ninput" || errs.String() != "bad\n" {
		t.Errorf("%q, %q", &out, &errs)
	}
}

func TestASignalThatEndedAProcessIsNamed(t *testing.T) {
	t.Parallel()
	exit, err := newClient(t).Exec(within(t, 30*time.Second), guest.Command{Argv: shell(`kill -TERM $$`)})
	if err != nil || exit.Code != -1 || exit.Signal != "SIGTERM" {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestCommandsThatCannotRunAreRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for name, test := range map[string]struct {
		cmd  guest.Command
		code wire.Code
	}{
		"no program":         {guest.Command{}, wire.Invalid},
		"an empty program":   {guest.Command{Argv: []string{""}}, wire.Invalid},
		"an unknown program": {guest.Command{Argv: []string{"no-such-program"}}, wire.NotFound},
		"no such path":       {guest.Command{Argv: []string{"/no/such/program"}}, wire.NotFound},
		"no such folder":     {guest.Command{Argv: []string{"true"}, Dir: "/no/such"}, wire.NotFound},
		"no pair":            {guest.Command{Argv: []string{"true"}, Env: []string{"A"}}, wire.Invalid},
		"a byte zero":        {guest.Command{Argv: []string{"true", "\x00"}}, wire.Failed},
		"not executable":     {guest.Command{Argv: []string{"/etc/passwd"}}, wire.Failed},
		"a negative limit":   {guest.Command{Argv: []string{"true"}, MaxOutput: -1}, wire.Invalid},
		"a negative timeout": {guest.Command{Argv: []string{"true"}, Timeout: -time.Second}, wire.Invalid},
	} {
		if _, err := c.Exec(within(t, 30*time.Second), test.cmd); !guest.IsRefusal(err, test.code) {
			t.Errorf("%s: %v, want %s", name, err, test.code)
		}
	}
	_, err := c.Exec(t.Context(), guest.Command{Argv: []string{strings.Repeat("x", wire.MaxFrame)}})
	if err == nil || c.Err() != nil {
		t.Errorf("a request that is too large: %v, %v", err, c.Err())
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A shell that tells the numbers of its child and itself, and waits for ever.
const family = `sleep 1000 & echo $!; echo $$; wait`

func TestATimeoutKillsGrandchildren(t *testing.T) {
	t.Parallel()
	told := make(pids, 2)
	exit, err := newClient(t).Exec(
		within(t, 30*time.Second), guest.Command{Argv: shell(family), Stdout: told, Timeout: time.Second},
	)
	if err != nil || !exit.TimedOut || exit.Signal != "SIGKILL" {
		t.Errorf("%+v, %v", exit, err)
	}
	for range 2 {
		pid := <-told
		eventually(t, "the process is dead", func() bool { return !alive(pid) })
	}
}

func TestTheEndOfTheContextOrOfTheSessionKillsGrandchildren(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.CancelFunc, *guest.Client){
		"context": func(cancel context.CancelFunc, _ *guest.Client) { cancel() },
		"session": func(_ context.CancelFunc, c *guest.Client) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t)
			ctx, cancel := context.WithCancel(within(t, 30*time.Second))
			defer cancel()
			told, ended := make(pids, 2), make(chan error, 1)
			go func() {
				_, err := c.Exec(ctx, guest.Command{Argv: shell(family), Stdout: told})
				ended <- err
			}()
			child, parent := <-told, <-told
			if !alive(child) || !alive(parent) {
				t.Error("they are dead before")
			}
			end(cancel, c)
			if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, guest.ErrClosed) {
				t.Error(err)
			}
			eventually(t, "both are dead", func() bool { return !alive(child) && !alive(parent) })
		})
	}
}

func TestWhatAProcessLeavesBehindIsKilledUnlessItLeftTheGroup(t *testing.T) {
	t.Parallel()
	told := make(pids, 2)
	exit, err := newClient(t).Exec(within(t, 30*time.Second), guest.Command{
		Argv: shell(`sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & exit 5`), Stdout: told,
	})
	if err != nil || exit.Code != 5 {
		t.Errorf("%+v, %v", exit, err)
	}
	var left []int
	for range 2 {
		left = append(left, <-told)
	}
	eventually(t, "one of the two is dead", func() bool { return alive(left[0]) != alive(left[1]) })
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestADetachedProcessOutlivesTheSession(t *testing.T) {
	t.Parallel()
	s := newAgent(t, nil)
	c := s.client(t, secret)
	exit, err := c.Exec(within(t, 30*time.Second), guest.Command{Argv: []string{"sleep", "1000"}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(exit.PID, syscall.SIGKILL) })
	c.Close()
	s.Wait()
	if !alive(exit.PID) {
		t.Error("it is dead")
	}
}

func TestOutputBeyondTheLimitIsThrownAway(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for _, test := range []struct {
		script    string
		truncated bool
	}{{"head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2", true}, {"head -c 50000 /dev/zero; head -c 50000 /dev/zero >&2", false}} {
		var out bytes.Buffer
		exit, err := c.Exec(
			within(t, 30*time.Second),
			guest.Command{Argv: shell(test.script), Stdout: &out, Stderr: &out, MaxOutput: 100_000},
		)
		if err != nil || exit.Code != 0 || exit.Truncated != test.truncated || out.Len() != 100_000 {
			t.Errorf("%s: %+v, %v, %d bytes", test.script, exit, err, out.Len())
		}
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestAProcessThatDoesNotReadItsInputHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	ctx, cancel := context.WithCancel(within(t, 30*time.Second))
	defer cancel()
	told, ended := make(pids, 1), make(chan error, 1)
	go func() {
		_, err := c.Exec(ctx, guest.Command{Argv: shell(`echo $$; exec sleep 1000`), Stdin: endless{}, Stdout: told})
		ended <- err
	}()
	pid := <-told
	for range 100 {
		if err := c.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "it is dead", func() bool { return !alive(pid) })
}

func TestAProcessMayEndBeforeItsInput(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	exit, err := newClient(t).Exec(
		within(t, 30*time.Second), guest.Command{Argv: []string{"head", "-c", "3"}, Stdin: endless{}, Stdout: &out},
	)
	if err != nil || exit.Code != 0 || out.Len() != 3 {
		t.Errorf("%+v, %v, %q", exit, err, &out)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error)  { return 0, f.error }
func (f failing) Write([]byte) (int, error) { return 0, f.error }

func TestAnErrorOfTheCallersReaderOrWriterCancelsTheProcess(t *testing.T) {
	t.Parallel()
	broken := failing{errors.New("broken")}
	c := newClient(t)
	for _, cmd := range []guest.Command{
		{Argv: []string{"cat"}, Stdin: broken},
		{Argv: shell(`echo; exec sleep 1000`), Stdout: broken},
	} {
		if _, err := c.Exec(within(t, 30*time.Second), cmd); !errors.Is(err, broken.error) {
			t.Errorf("%v: %v", cmd.Argv, err)
		}
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFiftyProcessesRunAtOnceOverOneStream(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	ctx := within(t, 60*time.Second)
	started, ended := make(chan struct{}, 50), make(chan error, 50)
	release := make(chan struct{})
	for range 50 {
		go func() {
			in, feed := io.Pipe()
			var out bytes.Buffer
			first := true
			exit, err := c.Exec(
				ctx,
				guest.Command{Argv: shell(`echo; exec cat`), Stdin: in, Stdout: writer(func(b []byte) (int, error) {
					if first {
						first = false
						started <- struct{}{}
						go func() {
							<-release
							_, _ = feed.Write(bytes.Repeat([]byte("x"), 200_000))
							feed.Close()
						}()
					}
					return out.Write(b)
				})},
			)
			if err == nil && (exit.Code != 0 || out.Len() != 200_001) {
				err = errors.New("wrong output")
			}
			ended <- err
		}()
	}
	for range 50 {
		<-started
	}
	close(release) // all run
	for range 50 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
