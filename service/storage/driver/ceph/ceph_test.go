//go:build linux

package ceph_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
	"github.com/mainstay-infra/mainstay/service/storage/driver/drivertest"
)

// The tests share a cluster, which takes some seconds to start. The last ones stop parts of it.
func TestTheDriverOnARealCluster(t *testing.T) {
	t.Parallel()
	require.Program(t, python, "python3-rbd")
	if out, err := exec.Command(python, "-c", "import rbd").CombinedOutput(); err != nil {
		require.Missing(t, "Ceph's library for Python is not installed (apt-get install python3-rbd): %s", out)
	}
	s := &site{program: cephtest.Helper(t), Cluster: cephtest.StartManaged(t)}
	t.Run("suite", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Backend {
			return drivertest.Backend{Driver: s.open(t), Pool: s.Pool, Kind: driver.Block, Write: s.write, Read: s.read}
		})
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *site)
	}{
		{"the condition of the cluster", condition},
		{"other kinds are refused", otherKinds},
		{"foreign and damaged images are listed", foreignImages},
		{"a volume in use is not deleted", volumeInUse},
		{"an image in the place of a volume is left alone", imageInItsPlace},
		{"a volume that is in the trash and out of it is forgotten there", halfInTheTrash},
		{"deleted volumes stay for their snapshots", keptForSnapshots},
		{"deleted snapshots stay for their clones", keptForClones},
		{"what is half made is made again", halfMade},
		{"broken off deletions are finished", brokenOff},
		{"a full pool", fullPool},
		{"helpers are killed at random moments", killedAtRandom},
		{"what is half a snapshot is taken again", halfASnapshot},
		{"files instead of a key", byFiles},
		{"a wrong key", wrongKey},
		{"another cluster", anotherCluster},
		{"the helper is killed in the middle of calls", helperKilled},
		{"a helper that is killed while it reads", helperKilledWhileReading},
		{"the helper dies with the gateway's end of the pipe", helperEnds},
		{"the helper that ends in the middle of calls is shut out", helperEndsAtWork},
		{"a monitor that is stopped", monitorStopped},
		{"an OSD that is stopped", osdStopped},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

func condition(t *testing.T, s *site) {
	c, err := s.open(t).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.NativeID != s.FSID || len(c.OSDs) != 1 || c.OSDs[0].ID != 0 || !c.OSDs[0].Up || !c.OSDs[0].In ||
		c.OSDs[0].Host == "" || c.OSDs[0].Capacity <= 0 {
		t.Errorf("%+v", c)
	}
	i := slices.IndexFunc(c.Pools, func(p driver.Pool) bool { return p.Name == s.Pool })
	if i < 0 || c.Pools[i].Kind != driver.PoolRBD || c.Pools[i].Replicas != 1 || c.Pools[i].Max <= 0 {
		t.Errorf("%+v", c.Pools)
	}
	if c.Health == driver.Healthy != (c.Summary == "") || c.Health == driver.Unknown {
		t.Errorf("%s: %q", c.Health, c.Summary)
	}
}

func otherKinds(t *testing.T, s *site) {
	d := s.open(t)
	for _, kind := range []driver.Kind{driver.Filesystem, driver.Object, ""} {
		_, err := d.CreateVolume(t.Context(), driver.VolumeSpec{Name: s.name(), Kind: kind, Size: mib})
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Field != "kind" || f.Code != "unsupported" {
			t.Errorf("%q: %v", kind, err)
		}
	}
}

func foreignImages(t *testing.T, s *site) {
	const others = 250 // more than two pages
	s.python(t, s.made(t, "ours-not"), "", `
for n in range(%d):
    rbd.RBD().create(c.open_ioctx(%q), "other-%%d" %% n, 1 << 20)
o = c.open_ioctx(%[2]q)
o.write_full("rbd_id.broken", b"\x03\x00\x00\x00abc")
with rados.WriteOpCtx() as op:
    o.set_omap(op, ("name_broken",), (b"\x03\x00\x00\x00abc",))
    o.operate_write_op(op, "rbd_directory")
`, others, s.Pool)
	d := s.open(t)
	ours := s.volume(t, d)
	asked, err := d.Volume(t.Context(), ours)
	if err != nil || asked.CreatedAt.IsZero() {
		t.Errorf("%+v, %v", asked, err)
	}
	foreign, damaged := map[string]bool{}, 0
	begun := time.Now()
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error {
		if strings.HasPrefix(v.Native, "other-") {
			if foreign[v.Native] || !v.Foreign || v.Size != mib || v.Damaged || v.Pool != s.Pool {
				t.Errorf("%+v", v)
			}
			foreign[v.Native] = true
		}
		if v.Native == ours.Native && v != asked {
			t.Errorf("listed as %+v, and shown as %+v", v, asked)
		}
		if v.Native == "broken" && v.Damaged && v.Foreign {
			damaged++
		}
		return nil
	}); err != nil || len(foreign) != others || damaged != 1 {
		t.Errorf("%d foreign, %d damaged, %v", len(foreign), damaged, err)
	}
	t.Logf("%d images in %s", others, time.Since(begun))
	name := driver.Name{Pool: s.Pool, Native: "other-0"}
	if _, err := d.Volume(t.Context(), name); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := d.DeleteVolume(t.Context(), name); err != nil {
		t.Error(err)
	}
	s.rbd(t, "info", "other-0")
}

func imageInItsPlace(t *testing.T, s *site) {
	d := s.open(t)
	renamed, trashed := s.volume(t, d), s.volume(t, d)
	s.rbd(t, "rename", renamed.Native, "away")
	if err := d.DiscardVolume(t.Context(), trashed, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, n := range []driver.Name{renamed, trashed} {
		s.rbd(t, "create", "--size", "1M", n.Native)
		n.Complete = true
		if err := d.DeleteVolume(t.Context(), n); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s is deleted: %v", n.Native, err)
		}
		s.rbd(t, "info", n.Native)
	}
	if _, err := d.UndeleteVolume(t.Context(), trashed); !fault.Is(err, fault.Conflict) {
		t.Errorf("brought back: %v", err)
	}
	for _, n := range []driver.Name{renamed, trashed} {
		s.rbd(t, "rm", "--no-progress", n.Native)
	}
	s.rbd(t, "rename", "away", renamed.Native)
	if _, err := d.UndeleteVolume(t.Context(), trashed); err != nil {
		t.Error(err)
	}
	for _, n := range []driver.Name{renamed, trashed} {
		n.Complete = true
		if err := d.DeleteVolume(t.Context(), n); err != nil {
			t.Error(err)
		}
	}
}

// As a helper leaves it that is killed while it brings a volume back.
func halfInTheTrash(t *testing.T, s *site) {
	d := s.open(t)
	for _, end := range []func(driver.Name) error{
		func(n driver.Name) error { _, err := d.UndeleteVolume(t.Context(), n); return err },
		func(n driver.Name) error { n.Complete = true; return d.DeleteVolume(t.Context(), n) },
	} {
		n := s.volume(t, d)
		if err := d.DiscardVolume(t.Context(), n, time.Hour); err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(s.rbd(t, "trash", "ls", "--all", s.Pool), " ")
		entry := t.TempDir() + "/entry"
		s.rados(t, "getomapval", "rbd_trash", "id_"+id, entry)
		s.rbd(t, "trash", "restore", s.Pool+"/"+id)
		s.rados(t, "setomapval", "rbd_trash", "id_"+id, "--input-file", entry)
		if err := end(n); err != nil {
			t.Error(err)
		}
		if left := s.rbd(t, "trash", "ls", "--all", s.Pool); strings.Contains(left, n.Native) {
			t.Errorf("the trash has %s", left)
		}
		n.Complete = true
		if err := d.DeleteVolume(t.Context(), n); err != nil {
			t.Error(err)
		}
	}
}

func volumeInUse(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	release := s.holds(t, n)
	err := d.DeleteVolume(t.Context(), n)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.From(err).Message, "127.0.0.1") {
		t.Errorf("deleted while it is open: %v", err)
	}
	if _, err := d.Volume(t.Context(), n); err != nil {
		t.Error(err)
	}
	release()
	if err := d.DeleteVolume(t.Context(), n); err != nil {
		t.Error(err)
	}
}

func keptForSnapshots(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	s.write(t, n, 0, bytes.Repeat([]byte("x"), mib))
	one, two := s.snapshot(t, d, n), s.snapshot(t, d, n)
	if err := d.DeleteVolume(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error {
		if v.Native == n.Native {
			t.Error("it is still listed")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	_, err := d.CreateSnapshot(t.Context(), n, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, quiet)
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("a snapshot of what is deleted: %v", err)
	}
	if _, err := d.CreateVolume(
		t.Context(), driver.VolumeSpec{Name: n, Kind: driver.Block, Size: mib},
	); !fault.Is(err, fault.Conflict) {
		t.Errorf("made again: %v", err)
	}
	if sn, err := d.Snapshot(t.Context(), one); err != nil || sn.Size != 8*mib || sn.Source != n.Native {
		t.Errorf("%+v, %v", sn, err)
	}
	if err := d.DeleteSnapshot(t.Context(), one); err != nil {
		t.Error(err)
	}
	s.rbd(t, "info", n.Native)
	if err := d.DeleteSnapshot(t.Context(), two); err != nil {
		t.Error(err)
	}
	s.gone(t, n)
}

func keptForClones(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	s.write(t, n, 0, []byte("content"))
	sn := s.snapshot(t, d, n)
	child := s.clone(t, d, sn)
	inner := s.snapshot(t, d, child)
	grandchild := s.clone(t, d, inner)
	if err := errors.Join(
		d.DeleteSnapshot(t.Context(), sn), d.DeleteVolume(t.Context(), n),
		d.DeleteVolume(t.Context(), child), d.DeleteSnapshot(t.Context(), inner),
	); err != nil {
		t.Fatal(err)
	}
	if got := s.read(t, grandchild, 0, 7); string(got) != "content" {
		t.Errorf("the clone of a clone holds %q", got)
	}
	s.rbd(t, "info", n.Native)
	if err := d.DeleteVolume(t.Context(), grandchild); err != nil {
		t.Fatal(err)
	}
	for _, name := range []driver.Name{n, child, grandchild} {
		s.gone(t, name)
	}
}

func halfMade(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	s.write(t, n, 0, []byte("content"))
	sn := s.snapshot(t, d, n)
	name := s.name()
	s.made(t, name.Native) // without a mark
	if _, err := d.Volume(t.Context(), name); !fault.Is(err, fault.NotFound) {
		t.Errorf("an image without a mark: %v", err)
	}
	if _, err := d.CloneSnapshot(t.Context(), sn, driver.VolumeSpec{Name: name, Size: 16 * mib}, quiet); err != nil {
		t.Fatal(err)
	}
	if got := s.read(t, name, 0, 7); string(got) != "content" {
		t.Errorf("%q", got)
	}
	// Only a name is there, as after a crash of librbd.
	half := s.name()
	s.python(t, n.Native, "", `c.open_ioctx(%q).write_full("rbd_id.%s", b"\x03\x00\x00\x00xyz")`, s.Pool, half.Native)
	if v, err := d.CreateVolume(
		t.Context(), driver.VolumeSpec{Name: half, Kind: driver.Block, Size: 4 * mib},
	); err != nil || v.Size != 4*mib {
		t.Errorf("%+v, %v", v, err)
	}
}

func brokenOff(t *testing.T, s *site) {
	d := s.open(t)
	n := s.volume(t, d)
	s.rbd(t, "image-meta", "set", n.Native, "mainstay/"+n.Native, "deleted")
	if err := d.EachVolume(t.Context(), func(driver.Volume) error { return nil }); err != nil {
		t.Error(err)
	}
	s.gone(t, n)
}

func fullPool(t *testing.T, s *site) {
	d := s.open(t)
	one, two := s.volume(t, d), s.volume(t, d)
	s.write(t, one, 0, []byte("content"))
	sn := s.snapshot(t, d, two)
	s.ceph(t, "osd", "pool", "set-quota", s.Pool, "max_objects", "1")
	s.await(t, driver.Critical)
	begun := time.Now()
	if _, err := d.CreateVolume(
		t.Context(), driver.VolumeSpec{Name: s.name(), Kind: driver.Block, Size: mib},
	); !fault.Is(err, fault.StorageFailed) || time.Since(begun) > within {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	if err := errors.Join(
		d.DeleteVolume(t.Context(), one), d.DeleteVolume(t.Context(), two), d.DeleteSnapshot(t.Context(), sn),
	); err != nil {
		t.Error(err)
	}
	s.gone(t, one)
	s.gone(t, two)
	s.ceph(t, "osd", "pool", "set-quota", s.Pool, "max_objects", "0")
	s.await(t, driver.Healthy)
}

func byFiles(t *testing.T, s *site) {
	d := opened(t, ceph.Config{
		Connection: wire.Connection{ConfFile: s.Conf, User: "admin"}, FSID: s.FSID, Program: s.program, Log: slogOf(t),
	})
	if c, err := d.Inspect(t.Context()); err != nil || c.NativeID != s.FSID {
		t.Errorf("%+v, %v", c, err)
	}
}

func wrongKey(t *testing.T, s *site) {
	cfg := s.config(t)
	const key = "AQBaMTFhAAAAABAAy0RZp3eYjnRNUIWkTPIKZA=="
	cfg.Key = key
	d := opened(t, cfg)
	for range 2 {
		begun := time.Now()
		_, err := d.Inspect(t.Context())
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "key") {
			t.Errorf("%v", err)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, cfg, cfg), key) {
			t.Error("the key is shown")
		}
		if took := time.Since(begun); took > within+time.Second {
			t.Errorf("it took %s", took)
		}
	}
}

func anotherCluster(t *testing.T, s *site) {
	cfg := s.config(t)
	cfg.FSID = uuid.NewString()
	d := opened(t, cfg)
	for range 2 {
		if _, err := d.Inspect(t.Context()); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), s.FSID) {
			t.Errorf("%v", err)
		}
	}
	if _, err := d.CreateVolume(
		t.Context(), driver.VolumeSpec{Name: s.name(), Kind: driver.Block, Size: mib},
	); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
}
