//go:build linux

package ceph_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
)

// killedAtRandom makes and deletes volumes while their helpers are killed. Each step is repeated until it
// succeeds, as jobs do. Nothing is lost, and nothing is left.
func killedAtRandom(t *testing.T, s *site) {
	before := s.objects(t)
	d, ctx := s.open(t), t.Context()
	tries, killed := 0, 0
	kill := func() {
		for _, pid := range s.helpers(t) {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	finish := func(what string, do func() error) {
		t.Helper()
		spared := false // each step is broken off once at most, so that the breaker does not open for long
		// What a helper had open that was killed looks open for half a minute, and then this step's may be killed, too.
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			tries++
			done := make(chan error, 1)
			go func() { done <- do() }()
			var err error
			select {
			case err = <-done:
			case <-time.After(time.Duration(rand.IntN(80)) * time.Millisecond):
				if !spared {
					kill()
				}
				spared = true
				err = <-done
			}
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	for range 4 {
		n, native, child := s.name(), driver.SnapshotName(uuid.NewString()), s.name()
		of := driver.Name{Pool: s.Pool, Native: native}
		finish("create", func() error {
			v, err := d.CreateVolume(ctx, driver.VolumeSpec{Name: n, Kind: driver.Block, Size: 8 * mib})
			if err == nil && v.Size != 8*mib {
				t.Errorf("%+v", v)
			}
			return err
		})
		s.write(t, n, 0, []byte("content"))
		finish("snapshot", func() error { _, err := d.CreateSnapshot(ctx, n, driver.Name{Native: native}, quiet); return err })
		finish("clone", func() error {
			v, err := d.CloneSnapshot(ctx, of, driver.VolumeSpec{Name: child, Size: 16 * mib}, quiet)
			if err == nil && v.Size != 16*mib {
				t.Errorf("%+v", v)
			}
			return err
		})
		finish("expand", func() error { _, err := d.ExpandVolume(ctx, child, 32*mib); return err })
		finish("delete the volume", func() error { return d.DeleteVolume(ctx, n) })
		if got := s.read(t, child, 0, 7); string(got) != "content" {
			t.Errorf("the clone holds %q", got)
		}
		finish("delete the snapshot", func() error { return d.DeleteSnapshot(ctx, of) })
		finish("delete the clone", func() error { return d.DeleteVolume(ctx, child) })
	}
	t.Logf("%d tries of 28 steps, %d helpers were killed", tries, killed)
	// A pass finishes the deletions that were broken off after their answer.
	if err := s.open(t).EachVolume(t.Context(), func(driver.Volume) error { return nil }); err != nil {
		t.Error(err)
	}
	// OSDs remove what only snapshots needed in their own time.
	var left []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left = nil
		for name := range s.objects(t) {
			if !before[name] {
				left = append(left, name)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, name := range left {
		t.Errorf("%s is left", name)
	}
}

// halfASnapshot takes a snapshot of which an attempt that was killed has left what librbd makes first. Without its object
// map, it cannot be cloned.
func halfASnapshot(t *testing.T, s *site) {
	d := s.open(t)
	n, native := s.volume(t, d), driver.SnapshotName(uuid.NewString())
	s.write(t, n, 0, []byte("content"))
	before := s.objects(t)
	s.rbd(t, "snap", "create", n.Native+"@"+native)
	for name := range s.objects(t) {
		if !before[name] && strings.HasPrefix(name, "rbd_object_map.") {
			s.rados(t, "rm", name)
		}
	}
	s.rados(t, "setomapval", "mainstay.snapshots", native, "~"+n.Native)
	of := driver.Name{Pool: s.Pool, Native: native}
	if _, err := d.Snapshot(t.Context(), of); !fault.Is(err, fault.NotFound) {
		t.Errorf("it is there: %v", err)
	}
	if _, err := d.CreateSnapshot(t.Context(), n, driver.Name{Native: native}, quiet); err != nil {
		t.Fatal(err)
	}
	clone, err := d.CloneSnapshot(t.Context(), of, driver.VolumeSpec{Name: s.name(), Size: 8 * mib}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.read(t, clone.Name, 0, 7); string(got) != "content" {
		t.Errorf("the clone holds %q", got)
	}
	if err := d.DeleteSnapshot(t.Context(), of); err != nil {
		t.Error(err)
	}
}

// helpers returns the processes of this test's program.
func (s *site) helpers(t *testing.T) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil && path == s.program {
			var pid int
			if _, err := fmt.Sscanf(link, "/proc/%d/exe", &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// alone waits until only so many helpers are left, and returns them.
func (s *site) alone(t *testing.T, n int) []int {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		pids := s.helpers(t)
		if len(pids) == n {
			return pids
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d helpers, not %d", len(pids), n)
		}
	}
}

func helperKilled(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	pid := s.alone(t, 1)[0]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 5)
	for range cap(failed) {
		go func() {
			_, err := d.Volume(context.Background(), n)
			failed <- err
		}()
	}
	time.Sleep(200 * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range cap(failed) {
		if err := <-failed; !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
	}
	if v, err := d.Volume(t.Context(), n); err != nil || v.Size != 8*mib {
		t.Errorf("the next call: %+v, %v", v, err)
	}
	if now := s.alone(t, 1); now[0] == pid {
		t.Error("it is the same process")
	}
	if out := s.ceph(t, "osd", "blocklist", "ls"); !strings.Contains(out, "127.0.0.1:0/") {
		t.Errorf("the helper that was killed is not shut out: %s", out)
	}
	// Its watches ended with it: the volume is free at once.
	if err := d.DeleteVolume(t.Context(), n); err != nil {
		t.Error(err)
	}
	// One that hangs is killed after a while, whether its caller waits or not.
	pid = s.alone(t, 1)[0]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := d.Volume(ctx, n); !fault.Is(err, fault.Unavailable) || time.Since(begun) > time.Second {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	s.alone(t, 0)
	if took := time.Since(begun); took < within-time.Second || took > within+2*time.Second {
		t.Errorf("it was killed after %s", took)
	}
}

// helperKilledWhileReading kills the helper that reads a snapshot: that is not the end of the snapshot.
func helperKilledWhileReading(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	sn, err := d.CreateSnapshot(t.Context(), n, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	control := s.alone(t, 1)[0]
	err = d.ReadSnapshot(t.Context(), sn.Name, func(c driver.Content) error {
		for _, pid := range s.alone(t, 2) {
			if pid == control {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		_, err := c.ReadAt(make([]byte, mib), 0)
		return err
	})
	if !fault.Is(err, fault.Unavailable) || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

func helperEnds(t *testing.T, s *site) {
	d := s.open(t)
	if _, err := d.Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.alone(t, 1)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	s.alone(t, 0)
	if _, err := d.Inspect(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// helperEndsAtWork ends the input of a helper that is at work, as the end of the gateway does: nothing looks open then.
func helperEndsAtWork(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	s.alone(t, 1)
	before := s.ceph(t, "osd", "blocklist", "ls")
	s.Signal(t, "ceph-osd", syscall.SIGSTOP)
	defer s.Signal(t, "ceph-osd", syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.DeleteVolume(ctx, n); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	s.alone(t, 0)
	if after := s.ceph(t, "osd", "blocklist", "ls"); strings.Count(after, "127.0.0.1:0/") <= strings.Count(before, "127.0.0.1:0/") {
		t.Errorf("the helper is not shut out: %s", after)
	}
}

// stopped stops a daemon, and checks that calls are answered within their bound, then at once, and that
// they succeed again afterwards.
func (s *site) stopped(t *testing.T, daemon string, ask func(*ceph.Driver) error) {
	t.Helper()
	d := s.open(t)
	if err := ask(d); err != nil {
		t.Fatal(err)
	}
	s.Signal(t, daemon, syscall.SIGSTOP)
	goOn := sync.OnceFunc(func() { s.Signal(t, daemon, syscall.SIGCONT) })
	defer goOn()
	begun := time.Now()
	err := ask(d)
	first := time.Since(begun)
	if !fault.Is(err, fault.Unavailable) || first > within+time.Second {
		t.Errorf("after %s: %v", first, err)
	}
	for range 3 {
		begun = time.Now()
		err := ask(d)
		f, took := fault.From(err), time.Since(begun)
		if f == nil || f.Kind != fault.Unavailable || f.RetryAfter <= 0 || took > 100*time.Millisecond {
			t.Errorf("after %s: %v", took, err)
		}
	}
	goOn()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if err = ask(d); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not recover: %v", err)
		}
	}
	t.Logf("the first call failed after %s", first)
}

func monitorStopped(t *testing.T, s *site) {
	s.stopped(t, "ceph-mon", func(d *ceph.Driver) error {
		_, err := d.Inspect(t.Context())
		return err
	})
}

func osdStopped(t *testing.T, s *site) {
	n := s.volume(t, s.open(t))
	s.stopped(t, "ceph-osd", func(d *ceph.Driver) error {
		_, err := d.Volume(t.Context(), n)
		return err
	})
}
