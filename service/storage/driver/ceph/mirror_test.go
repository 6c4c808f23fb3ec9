//go:build linux

package ceph_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
)

// eventually tries something until it holds: daemons of Ceph do it.
func eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		ok, err := holds()
		if ok && err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never happened: %s: %v", what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// mirrored returns two clusters that mirror the images of their pools, with drivers.
func mirrored(t *testing.T) (here, there *site, a, b *ceph.Driver) {
	t.Helper()
	program := cephtest.Helper(t)
	here, there = &site{cephtest.Start(t), program}, &site{cephtest.Start(t), program}
	a, b = here.open(t), there.open(t)
	token := there.PeerToken(t)
	if err := a.SetMirrorScope(t.Context(), here.Pool, driver.MirrorImages); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it stays as it is
		if err := a.AddMirrorPeer(t.Context(), here.Pool, token, false); err != nil {
			t.Fatal(err)
		}
	}
	here.StartMirror(t)
	there.StartMirror(t)
	return here, there, a, b
}

// send sends the changes of a volume.
func send(t *testing.T, d *ceph.Driver, n driver.Name) (failed error) {
	t.Helper()
	err := d.SendChanges(t.Context(), []driver.Name{n}, func(_ driver.Name, err error) { failed = err })
	return errors.Join(err, failed)
}

// newest returns the newest complete copy that a site has.
func newest(t *testing.T, d *ceph.Driver, n driver.Name) (c driver.MirrorCopy, m driver.Mirror, err error) {
	t.Helper()
	m, err = d.Mirror(t.Context(), n)
	for _, one := range m.Copies {
		if one.Complete {
			c = one
		}
	}
	return c, m, err
}

func TestVolumesAreMirrored(t *testing.T) {
	t.Parallel()
	here, there, a, b := mirrored(t)
	t.Run("tokens", func(t *testing.T) { tokens(t, there) })
	t.Run("by snapshots, and back", func(t *testing.T) { bySnapshots(t, here, there, a, b) })
	t.Run("by a journal", func(t *testing.T) { byJournal(t, here, there, a, b) })
}

func bySnapshots(t *testing.T, here, there *site, a, b *ceph.Driver) {
	n := here.volume(t, a)
	first, second := bytes.Repeat([]byte("first "), 1000), bytes.Repeat([]byte("second"), 1000)
	here.write(t, n, 4096, first)
	if _, err := a.Mirror(t.Context(), n); !fault.Is(err, fault.NotFound) {
		t.Errorf("a volume that is not mirrored: %v", err)
	}
	for range 2 {
		if err := a.EnableMirror(t.Context(), n, driver.BySnapshots); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.EnableMirror(t.Context(), n, driver.ByJournal); !fault.Is(err, fault.Conflict) {
		t.Errorf("it is mirrored in another way already: %v", err)
	}
	eventually(t, "the volume is at the other site", func() (bool, error) {
		c, m, err := newest(t, b, n)
		return c.Complete && !m.Primary && c.Of != 0, err
	})
	if got := there.read(t, n, 4096, len(first)); !bytes.Equal(got, first) {
		t.Error("the copy differs")
	}
	if v, err := b.Volume(t.Context(), n); err != nil || v.Foreign || v.Size != 8*mib {
		t.Errorf("the copy is %+v, %v", v, err)
	}

	// What was written since is there once it was sent.
	here.write(t, n, 4*mib, second)
	if err := send(t, a, n); err != nil {
		t.Fatal(err)
	}
	sent, _, err := newest(t, a, n)
	if err != nil {
		t.Fatal(err)
	}
	arrived := func(d *ceph.Driver, id uint64) func() (bool, error) {
		return func() (bool, error) {
			c, _, err := newest(t, d, n)
			return c.Of == id, err
		}
	}
	eventually(t, "the changes are at the other site", arrived(b, sent.ID))
	if got := there.read(t, n, 4*mib, len(second)); !bytes.Equal(got, second) {
		t.Error("the copy lacks the changes")
	}
	for what, err := range map[string]error{
		"a copy grows": func() error { _, err := b.ExpandVolume(t.Context(), n, 16*mib); return err }(),
		"a copy is promoted while its original is primary": b.Promote(t.Context(), n, false),
		"a copy sends":                   send(t, b, n),
		"mirroring ends where a copy is": b.DisableMirror(t.Context(), n),
	} {
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	pages := 0
	if err := b.EachMirror(t.Context(), there.Pool, func(m driver.Mirror) error {
		if pages++; m.Shown != n.Native || m.Primary || m.GlobalID == "" || len(m.Sites) == 0 {
			t.Errorf("the pool tells of %+v", m)
		}
		return nil
	}); err != nil || pages != 1 {
		t.Errorf("the pool tells of %d mirrors, %v", pages, err)
	}
	if err := a.SetMirrorScope(t.Context(), here.Pool, driver.MirrorDisabled); !fault.Is(err, fault.Conflict) {
		t.Errorf("mirroring of a pool with mirrors is disabled: %v", err)
	}

	t.Run("reading through a clone", func(t *testing.T) {
		sn := driver.SnapshotName(uuid.NewString())
		if _, err := a.CreateSnapshot(t.Context(), n, driver.Name{Native: sn}, quiet); err != nil {
			t.Fatal(err)
		}
		if err := send(t, a, n); err != nil {
			t.Fatal(err)
		}
		sent, _, err := newest(t, a, n)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the snapshot is at the other site", arrived(b, sent.ID))
		original, err := a.ReadMirror(t.Context(), n, sn, "", quiet)
		if err != nil {
			t.Fatal(err)
		}
		clone := driver.VolumeName(uuid.NewString())
		for _, c := range []struct{ snapshot, clone string }{{sn, clone}, {"", ""}} {
			got, err := b.ReadMirror(t.Context(), n, c.snapshot, c.clone, quiet)
			if err != nil || got.Sum != original.Sum || got.Read == 0 {
				t.Errorf("the copy reads as %+v, the original as %+v: %v", got, original, err)
			}
		}
		if list := there.rbd(t, "ls"); strings.Contains(list, clone) {
			t.Errorf("the clone is left: %s", list)
		}
		if err := a.DeleteSnapshot(t.Context(), driver.Name{Pool: here.Pool, Native: sn}); err != nil {
			t.Error(err)
		}
	})

	// A client that has it open stays the one that writes.
	open := here.holds(t, n)
	if m, err := a.Mirror(t.Context(), n); err != nil || !strings.Contains(m.InUse, "client.") {
		t.Errorf("it is not told who has it open: %+v, %v", m, err)
	}
	if err := a.Demote(t.Context(), n, false); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "client.") {
		t.Errorf("it was demoted while a client had it open: %v", err)
	}
	open()
	eventually(t, "it is demoted", func() (bool, error) { return true, a.Demote(t.Context(), n, false) })
	eventually(t, "it is promoted at the other site", func() (bool, error) { return true, b.Promote(t.Context(), n, false) })
	third := bytes.Repeat([]byte("third "), 1000)
	there.write(t, n, 4096, third)
	if err := send(t, b, n); err != nil {
		t.Fatal(err)
	}
	sent, _, err = newest(t, b, n)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changes come back", arrived(a, sent.ID))
	if got := here.read(t, n, 4096, len(third)); !bytes.Equal(got, third) {
		t.Error("what came back differs")
	}

	t.Run("a split brain", func(t *testing.T) {
		if err := a.Promote(t.Context(), n, true); err != nil {
			t.Fatal(err)
		}
		here.write(t, n, 0, []byte("lost"))
		clone := here.clone(t, a, here.snapshot(t, a, n))
		eventually(t, "it is demoted again", func() (bool, error) { return true, a.Demote(t.Context(), n, false) })
		if err := a.Resync(t.Context(), n); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), clone.Native) {
			t.Errorf("it is copied again although there is a clone: %v", err)
		}
		if err := a.DeleteVolume(t.Context(), clone); err != nil {
			t.Error(err)
		}
		if err := a.Resync(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is what the other site has", func() (bool, error) {
			c, m, err := newest(t, a, n)
			return c.Complete && c.Of != 0 && !m.Primary, err
		})
		if got := here.read(t, n, 0, 4); !bytes.Equal(got, make([]byte, 4)) {
			t.Errorf("what was written meanwhile is still there: %q", got)
		}
	})

	if err := b.DisableMirror(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy goes", func() (bool, error) {
		_, err := a.Volume(t.Context(), n)
		if fault.Is(err, fault.NotFound) {
			return true, nil
		}
		return false, err
	})
}

func byJournal(t *testing.T, here, there *site, a, b *ceph.Driver) {
	n := here.volume(t, a)
	if err := a.EnableMirror(t.Context(), n, driver.ByJournal); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 1<<16)
	for i := range content {
		content[i] = byte(rand.IntN(256))
	}
	eventually(t, "the volume is at the other site", func() (bool, error) {
		m, err := b.Mirror(t.Context(), n)
		return !m.Primary && m.Mode == driver.ByJournal, err
	})
	here.write(t, n, 0, content)
	eventually(t, "what is written is there without being sent", func() (bool, error) {
		return bytes.Equal(there.read(t, n, 0, len(content)), content), nil
	})
	if err := a.Demote(t.Context(), n, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is promoted at the other site", func() (bool, error) { return true, b.Promote(t.Context(), n, false) })
	if m, err := b.Mirror(t.Context(), n); err != nil || !m.Primary {
		t.Errorf("the mirror is %+v, %v", m, err)
	}
}

func tokens(t *testing.T, s *site) {
	for _, text := range []string{"", "%", "e30=", "bnVsbA=="} {
		if got, err := ceph.ParseToken(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	token, err := ceph.ParseToken(s.PeerToken(t))
	if err != nil || token.FSID != s.FSID {
		t.Fatalf("the token is of %s, %v", token.FSID, err)
	}
	cfg := s.config(t)
	if err := token.Dial(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	wrong := token
	wrong.Key = "AQBAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
	if err := wrong.Dial(t.Context(), cfg); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a wrong key: %v", err)
	}
}
