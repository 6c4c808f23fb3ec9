package qmp_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// deadline bounds everything that a test waits for.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// socket is a path short enough for a socket, whatever the test is called.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// qemu starts a real one that has no devices but what args give it, and returns a
// client; exited is closed when the process has ended.
func qemu(t *testing.T, args ...string) (c *qmp.Client, exited <-chan struct{}) {
	t.Helper()
	return qemuAt(t, socket(t), args...)
}

func qemuAt(t *testing.T, path string, args ...string) (c *qmp.Client, exited <-chan struct{}) {
	t.Helper()
	program := require.Program(t, "qemu-system-x86_64", "qemu-system-x86")
	args = append([]string{"-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none",
		"-qmp", "unix:" + path + ",server=on,wait=on"}, args...)
	var said strings.Builder
	process := exec.CommandContext(context.Background(), program, args...)
	process.Stdout, process.Stderr = &said, &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = process.Wait() // a QEMU that was killed has failed, which is no news
		close(ended)
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("QEMU said: %s", said.String())
		}
	})
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	go func() { // a QEMU that ends at once is not waited for
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, err := qmp.Dial(ctx, path, qmp.Options{Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, ended
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next is the next event, which must be of this name.
func next(t *testing.T, s *qmp.Subscription, name string) qmp.Event {
	t.Helper()
	e, err := s.Next(deadline(t))
	if err != nil || e.Name != name {
		t.Fatalf("event %s, %v, want %s", e.Name, err, name)
	}
	return e
}

func TestAMachineIsHaltedResumedAndEndedAndSaysSo(t *testing.T) {
	t.Parallel()
	c, exited := qemu(t, "-M", "q35", "-m", "16")
	ctx := deadline(t)
	events := c.Subscribe(qmp.EventStop, qmp.EventResume, qmp.EventPowerdown, qmp.EventShutdown)
	if v := c.Version(); v.Major < 5 {
		t.Errorf("version %s", v)
	}

	must(t, c.Stop(ctx))
	next(t, events, qmp.EventStop)
	if s, err := c.Status(ctx); err != nil || s.Running || s.State != "paused" {
		t.Errorf("stopped: %+v, %v", s, err)
	}
	must(t, c.Cont(ctx))
	if e := next(t, events, qmp.EventResume); time.Since(e.Time).Abs() > time.Hour {
		t.Errorf("resumed at %s", e.Time)
	}
	if s, err := c.Status(ctx); err != nil || !s.Running || s.State != "running" {
		t.Errorf("resumed: %+v, %v", s, err)
	}
	must(t, c.PowerDown(ctx))
	next(t, events, qmp.EventPowerdown)
	must(t, c.Quit(ctx))
	var why qmp.Shutdown
	if err := next(t, events, qmp.EventShutdown).Decode(&why); err != nil || why.Guest ||
		why.Reason != "host-qmp-quit" {
		t.Errorf("ended: %+v, %v", why, err)
	}

	<-c.Done()
	<-exited
	if _, err := events.Next(ctx); !errors.Is(err, qmp.ErrLost) {
		t.Errorf("events of an ended QEMU: %v", err)
	}
	if err := c.Stop(ctx); !errors.Is(err, qmp.ErrLost) || !strings.Contains(err.Error(), "QEMU ended") {
		t.Errorf("a call to an ended QEMU: %v", err)
	}
}

func TestARefusalIsTypedAndTheConnectionStands(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	ctx := deadline(t)
	var refused *qmp.Error
	if err := c.Execute(ctx, "no-such-command", nil, nil); !errors.As(err, &refused) ||
		refused.Class != "CommandNotFound" {
		t.Errorf("an unknown command: %v", err)
	}
	err := c.Execute(ctx, "blockdev-del", map[string]string{"node-name": "absent"}, nil)
	if !errors.As(err, &refused) || refused.Class != "GenericError" || !strings.Contains(err.Error(), "blockdev-del") {
		t.Errorf("an unknown node: %v", err)
	}
	if s, err := c.Status(ctx); err != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestConcurrentCallersGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	ctx := deadline(t)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 20 {
				var version struct{ Package string }
				if s, err := c.Status(ctx); err != nil || s.State == "" {
					t.Errorf("%+v, %v", s, err)
				}
				if err := c.Execute(ctx, "query-version", nil, &version); err != nil ||
					version.Package != c.Version().Package {
					t.Errorf("%+v, %v", version, err)
				}
			}
		})
	}
	callers.Wait()
}

func TestNumbersKeepTheir64BitsBothWays(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	ctx := deadline(t)
	const size = 1<<62 + 512 // no float64 is that
	must(
		t,
		c.Execute(ctx, "blockdev-add", map[string]any{"driver": "null-co", "node-name": "n", "size": int64(size)}, nil),
	)
	var typed []struct {
		Image struct {
			VirtualSize int64 `json:"virtual-size"`
		} `json:"image"`
	}
	must(t, c.Execute(ctx, "query-named-block-nodes", nil, &typed))
	if len(typed) != 1 || typed[0].Image.VirtualSize != size {
		t.Errorf("typed: %+v", typed)
	}
	var loose []map[string]any
	must(t, c.Execute(ctx, "query-named-block-nodes", nil, &loose))
	if got := loose[0]["image"].(map[string]any)["virtual-size"]; got != json.Number("4611686018427388416") {
		t.Errorf("loose: %v", got)
	}
}

func createFile(t *testing.T, c *qmp.Client, job, file string) {
	t.Helper()
	must(t, c.Execute(deadline(t), "blockdev-create", map[string]any{
		"job-id": job, "options": map[string]any{"driver": "file", "filename": file, "size": 1 << 20},
	}, nil))
}

func TestWaitJobReturnsTheJobsOutcomeAndDismissesIt(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	ctx := deadline(t)
	file := filepath.Join(t.TempDir(), "disk")
	createFile(t, c, "good", file)
	must(t, c.WaitJob(ctx, "good", nil))
	if info, err := os.Stat(file); err != nil || info.Size() != 1<<20 {
		t.Errorf("%v, %v", info, err)
	}

	createFile(t, c, "bad", filepath.Join(file, "below-a-file"))
	var failed *qmp.JobError
	if err := c.WaitJob(ctx, "bad", nil); !errors.As(err, &failed) || failed.ID != "bad" ||
		!strings.Contains(failed.Description, "below-a-file") {
		t.Errorf("a job that fails: %v", err)
	}
	var left []any
	if err := c.Execute(ctx, "query-jobs", nil, &left); err != nil || len(left) != 0 {
		t.Errorf("jobs were left: %v, %v", left, err)
	}
	if err := c.WaitJob(ctx, "good", nil); !errors.Is(err, qmp.ErrNoJob) {
		t.Errorf("a job that is no more: %v", err)
	}
}

// backup starts a copy of 64 MiB of nothing to nowhere.
func backup(t *testing.T, c *qmp.Client, bytesPerSecond int) {
	t.Helper()
	ctx := deadline(t)
	for _, node := range []string{"from", "to"} {
		must(
			t,
			c.Execute(
				ctx, "blockdev-add", map[string]any{"driver": "null-co", "node-name": node, "size": 64 << 20}, nil,
			),
		)
	}
	must(t, c.Execute(ctx, "blockdev-backup", map[string]any{
		"job-id": "b", "device": "from", "target": "to", "sync": "full", "auto-dismiss": false, "speed": bytesPerSecond,
	}, nil))
}

func TestWaitJobReportsProgressUpToTheWhole(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	backup(t, c, 128<<20)
	var current, total int64
	must(t, c.WaitJob(deadline(t), "b", func(now, of int64) {
		if now < current {
			t.Errorf("back from %d to %d", current, now)
		}
		current, total = now, of
	}))
	if current != 64<<20 || total != 64<<20 {
		t.Errorf("%d of %d", current, total)
	}
}

func TestACancelledJobIsAnErrorAndAWaiterWhoLeavesLeavesItAsItIs(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	backup(t, c, 1) // one byte a second never ends
	ctx, cancel := context.WithCancel(deadline(t))
	err := c.WaitJob(ctx, "b", func(int64, int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter who leaves: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- c.WaitJob(deadline(t), "b", nil) }()
	must(t, c.Execute(deadline(t), "job-cancel", map[string]string{"id": "b"}, nil))
	var failed *qmp.JobError
	if err := <-waited; !errors.As(err, &failed) {
		t.Errorf("a cancelled job: %v", err)
	}
}

func TestAClientThatComesBackMeetsTheSameMachine(t *testing.T) {
	t.Parallel()
	path := socket(t)
	c, _ := qemuAt(t, path, "-M", "none")
	ctx := deadline(t)
	must(t, c.Stop(ctx))
	c.Close()
	for range 2 {
		second, err := qmp.Dial(ctx, path, qmp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := second.Status(ctx); err != nil || s.State != "paused" {
			t.Errorf("%+v, %v", s, err)
		}
		second.Close()
		if err := second.Err(); !errors.Is(err, qmp.ErrLost) {
			t.Errorf("closed: %v", err)
		}
	}
}

func TestAJobThatWasLeftIsEndedWhateverItsState(t *testing.T) {
	t.Parallel()
	c, _ := qemu(t, "-M", "none")
	ctx := deadline(t)
	must(t, c.EndJob(ctx, "none"))
	path := filepath.Join(t.TempDir(), "disk")
	create := func() error {
		return c.Execute(
			ctx,
			"blockdev-create",
			map[string]any{
				"job-id":  "left",
				"options": map[string]any{"driver": "file", "filename": path, "size": 1 << 20},
			},
			nil,
		)
	}
	for range 3 { // each is in the way of the next
		must(t, create())
		must(t, c.EndJob(ctx, "left"))
	}
	must(t, create())
	for { // until it has concluded
		var jobs []struct {
			Status string `json:"status"`
		}
		must(t, c.Execute(ctx, "query-jobs", nil, &jobs))
		if len(jobs) == 1 && jobs[0].Status == "concluded" {
			break
		}
	}
	must(t, c.EndJob(ctx, "left"))
	must(t, create())
}
