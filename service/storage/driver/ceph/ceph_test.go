//go:build linux

package ceph_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

const mib = 1 << 20

// python is Debian's own, which has Ceph's library.
const python = "/usr/bin/python3"

// within bounds the calls of these tests.
const within = 4 * time.Second

// site is a cluster and the helper's program.
type site struct {
	*cephtest.Cluster
	program string
}

// config reaches the cluster as the gateway does: by its address and a key.
func (s *site) config(t *testing.T) ceph.Config {
	return ceph.Config{
		Connection: wire.Connection{MonHosts: []string{s.Address}, User: "admin", Key: wire.Secret(s.Key)},
		Program:    s.program, Within: within, Log: slogOf(t),
	}
}

func (s *site) open(t *testing.T) *ceph.Driver {
	t.Helper()
	return opened(t, s.config(t))
}

func opened(t *testing.T, cfg ceph.Config) *ceph.Driver {
	t.Helper()
	d, err := ceph.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// python runs a program with Ceph's own Python library, on an open image.
func (s *site) python(t *testing.T, image, in, text string, args ...any) []byte {
	t.Helper()
	readOnly := "True" // as copies of mirrors are opened
	if in != "" {
		readOnly = "False"
	}
	cmd := exec.Command(python, "-c", fmt.Sprintf(`
import rados, rbd, sys, time
c = rados.Rados(conffile=%q); c.connect()
i = rbd.Image(c.open_ioctx(%q), %q, read_only=%s)
`, s.Conf, s.Pool, image, readOnly)+fmt.Sprintf(text, args...)+"\ni.close()\n")
	cmd.Stdin = strings.NewReader(in)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, &problems)
	}
	return out
}

func (s *site) write(t *testing.T, n driver.Name, at int64, content []byte) {
	t.Helper()
	s.python(t, n.Native, string(content), "i.write(sys.stdin.buffer.read(), %d)", at)
}

func (s *site) read(t *testing.T, n driver.Name, at int64, length int) []byte {
	t.Helper()
	return s.python(t, n.Native, "", "sys.stdout.buffer.write(i.read(%d, %d))", at, length)
}

// rbd runs the command rbd.
func (s *site) rbd(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("rbd", append([]string{"-c", s.Conf, "-p", s.Pool}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("rbd %v: %v: %s", args, err, out)
	}
	return string(out)
}

// ceph runs the command ceph.
func (s *site) ceph(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ceph", append([]string{"-c", s.Conf}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("ceph %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *site) name() driver.Name {
	return driver.Name{Pool: s.Pool, Native: driver.VolumeName(uuid.NewString())}
}

func (s *site) volume(t *testing.T, d *ceph.Driver) driver.Name {
	t.Helper()
	spec := driver.VolumeSpec{Name: s.name(), Kind: driver.Block, Size: 8 * mib}
	if _, err := d.CreateVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return spec.Name
}

func quiet(float64) {}

func (s *site) snapshot(t *testing.T, d *ceph.Driver, of driver.Name) driver.Name {
	t.Helper()
	sn, err := d.CreateSnapshot(t.Context(), of, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return sn.Name
}

func (s *site) clone(t *testing.T, d *ceph.Driver, of driver.Name) driver.Name {
	t.Helper()
	spec := driver.VolumeSpec{Name: s.name(), Kind: driver.Block}
	if _, err := d.CloneSnapshot(t.Context(), of, spec, quiet); err != nil {
		t.Fatal(err)
	}
	return spec.Name
}

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

// made makes an image with the command rbd.
func (s *site) made(t *testing.T, name string) string {
	t.Helper()
	s.rbd(t, "create", "--size", "1M", name)
	return name
}

// holds has a client open an image, until release is called.
func (s *site) holds(t *testing.T, n driver.Name) (release func()) {
	t.Helper()
	cmd := exec.Command(python, "-c", fmt.Sprintf(`
import rados, rbd, sys
c = rados.Rados(conffile=%q); c.connect()
i = rbd.Image(c.open_ioctx(%q), %q)
print("open", flush=True)
sys.stdin.read()
i.close()
`, s.Conf, s.Pool, n.Native))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
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

// gone checks that nothing is left of an image.
func (s *site) gone(t *testing.T, n driver.Name) {
	t.Helper()
	if out, err := exec.Command("rbd", "-c", s.Conf, "-p", s.Pool, "info", n.Native).CombinedOutput(); err == nil {
		t.Errorf("it is still there: %s", out)
	}
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

// await waits until the pool is in a condition.
func (s *site) await(t *testing.T, health driver.Health) {
	t.Helper()
	d := s.open(t)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c, err := d.Inspect(t.Context())
		if err == nil && slices.ContainsFunc(c.Pools, func(p driver.Pool) bool {
			return p.Name == s.Pool && p.Health == health
		}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pool is not %s: %+v, %v", health, c.Pools, err)
		}
	}
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

// rados runs the command rados on the pool.
func (s *site) rados(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("rados", append([]string{"-c", s.Conf, "-p", s.Pool}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("rados %v: %v: %s", args, err, out)
	}
}

// objects returns the names of the pool's objects.
func (s *site) objects(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.Command("rados", "-c", s.Conf, "-p", s.Pool, "ls").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"rbd_children": true, "rbd_directory": true, "mainstay.snapshots": true, "rbd_trash": true}
	for name := range strings.Lines(string(out)) {
		names[strings.TrimSpace(name)] = true
	}
	return names
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
