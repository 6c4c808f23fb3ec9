package zfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs/zfstest"
)

func TestCallsEndSoonAfterTheirContext(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	if err := os.WriteFile(filepath.Join(h.dir, "hang"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ended := make(chan error, 40)
	for range cap(ended) { // more than may be under way at once
		go func() {
			_, err := d.Volume(ctx, volume())
			ended <- err
		}()
	}
	for range cap(ended) {
		select {
		case err := <-ended:
			if !fault.Is(err, fault.Unavailable) {
				t.Errorf("%v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a call hangs")
		}
	}
	if err := os.Remove(filepath.Join(h.dir, "hang")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Inspect(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Something that cannot be killed, as in the kernel, keeps what the command prints to.
func TestCallsEndWhileTheirOutputStaysOpen(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	script, stuck := filepath.Join(h.dir, "script"), filepath.Join(h.dir, "stuck")
	text := fmt.Sprintf("#!/bin/sh\nif [ -e %[1]s ]; then sleep 3600 & echo $! >%[1]s.pid; wait; fi\nexec %[2]s \"$@\"\n",
		stuck, h.config().Zfs)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	cfg := h.config()
	cfg.Zfs = script
	d, err := zfs.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stuck, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := d.Volume(ctx, volume())
		ended <- err
	}()
	select {
	case err := <-ended:
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the call hangs")
	}
	raw, err := os.ReadFile(stuck + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("kill", strings.TrimSpace(string(raw))).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Errorf("%v: %s", err, out)
	}
}

// Each call is killed before and after each of the commands that it runs, and repeated.
func TestCallsThatAreKilledAreRepeated(t *testing.T) {
	t.Parallel()
	for _, kind := range []driver.Kind{driver.Block, driver.Filesystem} {
		for name, op := range operations(kind) {
			if kind == driver.Filesystem && !slices.Contains([]string{"create", "delete", "clone", "discard", "undelete"}, name) {
				continue // its commands are those of block volumes
			}
			for _, when := range []string{"before", "after"} {
				t.Run(fmt.Sprintf("%s %s %s", kind, name, when), func(t *testing.T) {
					t.Parallel()
					for command := 1; op.killed(t, kind, when, command); command++ {
						if command > 12 {
							t.Fatal("it runs too many commands")
						}
					}
				})
			}
		}
	}
}

// operation is a call that is killed. It works on a volume, a snapshot of it, and a clone of that.
type operation struct {
	do    func(context.Context, *zfs.Driver, *scene) error
	check func(*host, *zfs.Driver, *scene)
}

type scene struct {
	volume, clone driver.Volume
	snapshot      driver.Snapshot
	newVolume     driver.Name
	newSnapshot   driver.Name
	discarded     bool
}

// killed reports whether the call ran so many commands that one was killed.
func (op operation) killed(t *testing.T, kind driver.Kind, when string, command int) bool {
	h := newHost(t)
	h.T = t
	d := h.open()
	s := &scene{volume: h.make(d, kind, 8*mib), newVolume: volume(), newSnapshot: snapshotName()}
	s.snapshot = h.snap(d, s.volume)
	s.clone = h.clone(d, s.snapshot)
	var at int
	h.change(func(k *zfstest.Disk) { at = k.Changes + command })
	if err := os.WriteFile(filepath.Join(h.dir, "die"), fmt.Appendf(nil, "%s %d", when, at), 0o600); err != nil {
		t.Fatal(err)
	}
	first := op.do(t.Context(), d, s)
	var reached bool
	h.change(func(k *zfstest.Disk) { reached = k.Changes >= at })
	if err := os.Remove(filepath.Join(h.dir, "die")); err != nil {
		t.Fatal(err)
	}
	d = h.open() // the gateway starts again
	for range 2 {
		if err := op.do(t.Context(), d, s); err != nil {
			t.Errorf("%s command %d (%v), and again: %v", when, command, first, err)
		}
	}
	op.check(h, d, s)
	for _, name := range h.names() {
		if strings.HasPrefix(name, "new-") {
			t.Errorf("%s command %d: %s is left", when, command, name)
		}
	}
	return reached
}

func operations(kind driver.Kind) map[string]operation {
	has := func(h *host, d *zfs.Driver, n driver.Name, size int64) {
		h.Helper()
		if v, err := d.Volume(h.Context(), n); err != nil || v.Size != size || v.Kind != kind {
			h.Errorf("%+v, %v", v, err)
		}
	}
	none := func(h *host, err error) {
		h.Helper()
		if !fault.Is(err, fault.NotFound) {
			h.Errorf("it is there: %v", err)
		}
	}
	return map[string]operation{
		"create": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			_, err := d.CreateVolume(ctx, driver.VolumeSpec{Name: s.newVolume, Kind: kind, Size: 8 * mib})
			return err
		}, func(h *host, d *zfs.Driver, s *scene) { has(h, d, s.newVolume, 8*mib) }},
		"expand": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			_, err := d.ExpandVolume(ctx, s.volume.Name, 16*mib)
			return err
		}, func(h *host, d *zfs.Driver, s *scene) { has(h, d, s.volume.Name, 16*mib) }},
		"delete": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			return errors.Join(d.DeleteVolume(ctx, s.volume.Name), d.DeleteVolume(ctx, s.clone.Name))
		}, func(h *host, d *zfs.Driver, s *scene) {
			_, err := d.Volume(h.Context(), s.volume.Name)
			none(h, err)
			if _, err := d.Snapshot(h.Context(), s.snapshot.Name); err != nil || len(h.names()) != 2 {
				h.Errorf("%v, %v", h.names(), err)
			}
		}},
		"discard": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			return d.DiscardVolume(ctx, s.clone.Name, time.Hour)
		}, func(h *host, d *zfs.Driver, s *scene) {
			_, err := d.Volume(h.Context(), s.clone.Name)
			none(h, err)
			if v, err := d.UndeleteVolume(h.Context(), s.clone.Name); err != nil || v.Size != 8*mib {
				h.Errorf("%+v, %v", v, err)
			}
		}},
		"undelete": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			if s.discarded || d.DiscardVolume(ctx, s.clone.Name, time.Hour) == nil {
				s.discarded = true
			}
			_, err := d.UndeleteVolume(ctx, s.clone.Name)
			return err
		}, func(h *host, d *zfs.Driver, s *scene) { has(h, d, s.clone.Name, 8*mib) }},
		"snapshot": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			_, err := d.CreateSnapshot(ctx, s.volume.Name, s.newSnapshot, quiet)
			return err
		}, func(h *host, d *zfs.Driver, s *scene) {
			if got, err := d.Snapshot(h.Context(), s.newSnapshot); err != nil || got.Size != 8*mib || got.Kind != kind {
				h.Errorf("%+v, %v", got, err)
			}
		}},
		"clone": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			_, err := d.CloneSnapshot(ctx, s.snapshot.Name, driver.VolumeSpec{Name: s.newVolume, Kind: kind, Size: 16 * mib}, quiet)
			return err
		}, func(h *host, d *zfs.Driver, s *scene) { has(h, d, s.newVolume, 16*mib) }},
		"all goes": {func(ctx context.Context, d *zfs.Driver, s *scene) error {
			return errors.Join(
				d.DeleteSnapshot(ctx, s.snapshot.Name), d.DeleteVolume(ctx, s.volume.Name), d.DeleteVolume(ctx, s.clone.Name),
			)
		}, func(h *host, d *zfs.Driver, s *scene) {
			_, err := d.Snapshot(h.Context(), s.snapshot.Name)
			none(h, err)
			h.open() // what was killed between two commands goes at the next start
			if names := h.names(); len(names) != 0 {
				h.Errorf("left: %v", names)
			}
		}},
	}
}
