package zfs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/drivertest"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs/zfstest"
)

const (
	base = "tank/mainstay"
	mib  = 1 << 20
)

// built is the folder with the programs.
var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "zfs"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "fakezfs")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/fakezfs").CombinedOutput() //nolint:gosec // the test's own
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// program returns the path of the program that is zfs and zpool.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// host is a machine with a pool.
type host struct {
	*testing.T
	dir string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{T: t, dir: t.TempDir()}
	for _, name := range []string{"zfs", "zpool"} {
		if err := os.Symlink(program(t), filepath.Join(h.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	filesystem := func(guid int64) *zfstest.Node {
		return &zfstest.Node{Type: "filesystem", GUID: guid, Props: map[string]string{}, Mounted: true, CanMount: "on"}
	}
	(&zfstest.Disk{
		Pool: "tank", Size: 1 << 40, Health: "ONLINE", Datasets: map[string]*zfstest.Node{"tank": filesystem(11), base: filesystem(12)},
	}).Save(h.dir)
	t.Cleanup(h.onlyOwn)
	return h
}

func (h *host) config() zfs.Config {
	return zfs.Config{Dataset: base, Zfs: filepath.Join(h.dir, "zfs"), Zpool: filepath.Join(h.dir, "zpool")}
}

func (h *host) open() *zfs.Driver {
	h.Helper()
	d, err := zfs.Open(h.Context(), h.config())
	if err != nil {
		h.Fatal(err)
	}
	return d
}

// operator runs zfs as a person does.
func (h *host) operator(args ...string) {
	h.Helper()
	if out, err := exec.CommandContext(h.Context(), filepath.Join(h.dir, "zfs"), args...).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		h.Fatalf("%v: %v: %s", args, err, out)
	}
}

// change changes the state of the pool.
func (h *host) change(do func(*zfstest.Disk)) {
	defer zfstest.Lock(h.dir)()
	d := zfstest.Load(h.dir)
	do(d)
	d.Save(h.dir)
}

// names returns the names of what is below the base, without it.
func (h *host) names() (names []string) {
	h.change(func(d *zfstest.Disk) {
		for name := range d.Datasets {
			if rest, ok := strings.CutPrefix(name, base+"/"); ok {
				names = append(names, rest)
			}
		}
	})
	slices.Sort(names)
	return names
}

// onlyOwn checks that no command was recursive or forced, and that each named something of the backend.
func (h *host) onlyOwn() {
	raw, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		h.Error(err)
	}
	for line := range strings.Lines(string(raw)) {
		args := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		last := args[len(args)-1]
		if slices.Contains(args, "-r") || slices.Contains(args, "-R") || slices.Contains(args, "-f") ||
			last != base && last != "tank" && !strings.HasPrefix(last, base+"/") {
			h.Errorf("%q", args)
		}
	}
}

// at opens the content of a volume.
func (h *host) at(volume driver.Name) (f *os.File) {
	h.Helper()
	h.change(func(d *zfstest.Disk) {
		n := d.Datasets[base+"/"+volume.Native]
		if n == nil {
			h.Fatalf("there is no %s", volume.Native)
		}
		var err error
		if f, err = os.OpenFile(zfstest.Content(h.dir, n), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			h.Fatal(err)
		}
	})
	return f
}

func (h *host) write(_ *testing.T, volume driver.Name, at int64, content []byte) {
	h.Helper()
	f := h.at(volume)
	if _, err := f.WriteAt(content, at); errors.Join(err, f.Close()) != nil {
		h.Fatal(err)
	}
}

func (h *host) read(_ *testing.T, volume driver.Name, at int64, length int) []byte {
	h.Helper()
	f, out := h.at(volume), make([]byte, length)
	if _, err := f.ReadAt(out, at); err != nil && !errors.Is(err, io.EOF) { // zeros follow
		h.Fatal(err)
	}
	_ = f.Close()
	return out
}

func TestTheDriver(t *testing.T) {
	t.Parallel()
	for _, kind := range []driver.Kind{driver.Block, driver.Filesystem} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) drivertest.Backend {
				h := newHost(t)
				return drivertest.Backend{Driver: h.open(), Pool: "tank", Kind: kind, Write: h.write, Read: h.read}
			})
		})
	}
}

func volume() driver.Name {
	return driver.Name{Pool: "tank", Native: driver.VolumeName(uuid.NewString())}
}

func snapshotName() driver.Name {
	return driver.Name{Pool: "tank", Native: driver.SnapshotName(uuid.NewString())}
}

func quiet(float64) {}

// make makes a volume.
func (h *host) make(d *zfs.Driver, kind driver.Kind, size int64) driver.Volume {
	h.Helper()
	v, err := d.CreateVolume(h.Context(), driver.VolumeSpec{Name: volume(), Kind: kind, Size: size})
	if err != nil {
		h.Fatal(err)
	}
	return v
}

func (h *host) snap(d *zfs.Driver, of driver.Volume) driver.Snapshot {
	h.Helper()
	s, err := d.CreateSnapshot(h.Context(), of.Name, snapshotName(), quiet)
	if err != nil {
		h.Fatal(err)
	}
	return s
}

func (h *host) clone(d *zfs.Driver, of driver.Snapshot) driver.Volume {
	h.Helper()
	v, err := d.CloneSnapshot(h.Context(), of.Name, driver.VolumeSpec{Name: volume(), Kind: of.Kind}, quiet)
	if err != nil {
		h.Fatal(err)
	}
	return v
}

func TestSizesFitTheBlocks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	for _, kind := range []driver.Kind{driver.Block, driver.Filesystem} {
		v := h.make(d, kind, mib+1)
		if v.Size != 2*mib || !v.Enforced {
			t.Errorf("%+v", v)
		}
		if v, err := d.ExpandVolume(t.Context(), v.Name, 5*mib-1); err != nil || v.Size != 5*mib {
			t.Errorf("%+v, %v", v, err)
		}
		for _, size := range []int64{0, -1, zfs.MaxSize + 1} {
			_, err := d.CreateVolume(t.Context(), driver.VolumeSpec{Name: volume(), Kind: kind, Size: size})
			if fault.From(err).Field != "size_bytes" {
				t.Errorf("%d: %v", size, err)
			}
		}
	}
}

func TestWhatTheGatewayDidNotMakeIsOnlyRead(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	ours := h.make(d, driver.Filesystem, 8*mib)
	unmarked, renamed := volume(), volume()
	h.operator("create", "-s", "-V", "1048576", base+"/their disk")
	h.operator("create", base+"/theirs")
	h.operator("create", base+"/theirs/below")
	h.operator("create", base+"/"+unmarked.Native)
	h.operator("create", base+"/"+renamed.Native)
	h.operator("set", "mainstay:name="+ours.Native, base+"/"+renamed.Native)
	h.operator("create", base+"/gone-"+uuid.NewString()) // it is not marked
	h.operator("create", base+"/"+ours.Native+"/below")  // it inherits the mark
	foreign := map[string]bool{}
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error {
		foreign[v.Native] = v.Foreign
		return nil
	}); err != nil || len(foreign) != 6 || foreign[ours.Native] || !foreign["their disk"] || !foreign["theirs"] ||
		!foreign[unmarked.Native] || !foreign[renamed.Native] {
		t.Errorf("%v, %v", foreign, err)
	}
	before := h.names()
	for _, n := range []driver.Name{unmarked, renamed} {
		_, create := d.CreateVolume(t.Context(), driver.VolumeSpec{Name: n, Kind: driver.Block, Size: mib})
		_, expand := d.ExpandVolume(t.Context(), n, mib)
		_, snap := d.CreateSnapshot(t.Context(), n, snapshotName(), quiet)
		for _, err := range []error{create, expand, snap, d.DeleteVolume(t.Context(), n)} {
			if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "did not make") {
				t.Errorf("%s: %v", n.Native, err)
			}
		}
	}
	// Something of theirs is below a volume.
	if err := d.DeleteVolume(t.Context(), ours.Name); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	// A snapshot of theirs has the name.
	n := snapshotName()
	h.operator("snapshot", base+"/"+ours.Native+"@"+n.Native)
	if _, err := d.CreateSnapshot(t.Context(), ours.Name, n, quiet); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if err := d.DeleteSnapshot(t.Context(), n); err != nil {
		t.Error(err)
	}
	if after := h.names(); len(after) != len(before)+1 {
		t.Errorf("%v, then %v", before, after)
	}
}

// A volume with a snapshot of theirs goes when they have removed that.
func TestDeletedVolumesWaitForSnapshotsOfOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	v := h.make(d, driver.Filesystem, 8*mib)
	h.operator("snapshot", base+"/"+v.Native+"@daily")
	if err := d.DeleteVolume(t.Context(), v.Name); err != nil {
		t.Fatal(err)
	}
	names := h.names()
	if len(names) != 2 || !strings.HasPrefix(names[0], "gone-") || !strings.HasSuffix(names[1], "@daily") {
		t.Errorf("%v", names)
	}
	h.change(func(k *zfstest.Disk) {
		if n := k.Datasets[base+"/"+names[0]]; n.Mounted || n.CanMount != "noauto" {
			t.Errorf("its files are still there: %+v", n)
		}
	})
	if err := d.EachVolume(t.Context(), func(v driver.Volume) error { return errors.New(v.Native) }); err != nil {
		t.Errorf("it is listed: %v", err)
	}
	h.operator("destroy", base+"/"+names[1])
	h.open() // the next start
	if names := h.names(); len(names) != 0 {
		t.Errorf("%v", names)
	}
}

// What shares data goes in any order, and nothing is left at the end.
func TestVolumesSnapshotsAndClonesGoInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 3, 1, 2}, {1, 0, 3, 2}, {2, 0, 1, 3}, {3, 0, 2, 1}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			d := h.open()
			v := h.make(d, driver.Block, 8*mib)
			s := h.snap(d, v)
			c := h.clone(d, s)
			s2 := h.snap(d, c)
			if c.Parent == "" {
				t.Errorf("%+v", c)
			}
			remove := []func() error{
				func() error { return d.DeleteVolume(t.Context(), v.Name) },
				func() error { return d.DeleteSnapshot(t.Context(), s.Name) },
				func() error { return d.DeleteVolume(t.Context(), c.Name) },
				func() error { return d.DeleteSnapshot(t.Context(), s2.Name) },
			}
			for _, i := range order {
				for range 2 {
					if err := remove[i](); err != nil {
						t.Errorf("%d: %v", i, err)
					}
				}
			}
			if names := h.names(); len(names) != 0 {
				t.Errorf("left: %v", names)
			}
		})
	}
}

func TestASnapshotThatSomebodyHoldsGoesLater(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	v := h.make(d, driver.Block, 8*mib)
	s := h.snap(d, v)
	h.operator("hold", "keep", base+"/"+v.Native+"@"+s.Native)
	if err := d.DeleteSnapshot(t.Context(), s.Name); err != nil {
		t.Error(err)
	}
	if _, err := d.Snapshot(t.Context(), s.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if _, err := d.CreateSnapshot(t.Context(), v.Name, s.Name, quiet); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
}

// An operator has promoted a clone: the snapshot is the clone's now.
func TestPromotedClones(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	v := h.make(d, driver.Block, 8*mib)
	s := h.snap(d, v)
	c := h.clone(d, s)
	h.operator("promote", base+"/"+c.Native)
	if got, err := d.Snapshot(t.Context(), s.Name); err != nil || got.Source != v.Native || got.Size != v.Size {
		t.Errorf("%+v, %v", got, err)
	}
	for _, err := range []error{
		d.DeleteVolume(t.Context(), c.Name), d.DeleteSnapshot(t.Context(), s.Name), d.DeleteVolume(t.Context(), v.Name),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if names := h.names(); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}

func TestVolumesInUseAndFullPoolsAreTold(t *testing.T) {
	t.Parallel()
	for _, kind := range []driver.Kind{driver.Block, driver.Filesystem} {
		h := newHost(t)
		d := h.open()
		v := h.make(d, kind, 8*mib)
		h.change(func(k *zfstest.Disk) { k.Datasets[base+"/"+v.Native].Busy = true })
		if err := d.DeleteVolume(t.Context(), v.Name); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%v", err)
		}
		s := h.snap(d, v)
		h.change(func(k *zfstest.Disk) { k.Full = true })
		_, create := d.CreateVolume(t.Context(), driver.VolumeSpec{Name: volume(), Kind: kind, Size: mib})
		_, snap := d.CreateSnapshot(t.Context(), v.Name, snapshotName(), quiet)
		_, clone := d.CloneSnapshot(t.Context(), s.Name, driver.VolumeSpec{Name: volume(), Kind: kind, Size: 16 * mib}, quiet)
		for i, err := range []error{create, snap, clone} {
			if !fault.Is(err, fault.StorageFailed) || strings.Contains(err.Error(), h.dir) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if names := h.names(); len(names) != 2 {
			t.Errorf("left: %v", names)
		}
	}
}

func TestAFileSystemThatWasNotMountedIsMounted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	v := h.make(d, driver.Filesystem, 8*mib)
	mounted := func() (is bool) {
		h.change(func(k *zfstest.Disk) { is = k.Datasets[base+"/"+v.Native].Mounted })
		return is
	}
	again := func() {
		t.Helper()
		spec := driver.VolumeSpec{Name: v.Name, Kind: v.Kind, Size: v.Size}
		if _, err := d.CreateVolume(t.Context(), spec); err != nil {
			t.Error(err)
		}
	}
	if !mounted() {
		t.Error("it is not mounted")
	}
	h.operator("unmount", base+"/"+v.Native)
	if again(); !mounted() {
		t.Error("it is still not mounted")
	}
	// Where it belongs is the operator's choice.
	h.operator("unmount", base+"/"+v.Native)
	h.change(func(k *zfstest.Disk) { k.Datasets[base+"/"+v.Native].Mount = "legacy" })
	if again(); mounted() {
		t.Error("it is mounted")
	}
}

func TestOtherDatasetsAreRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	cfg := h.config()
	cfg.GUID = "12"
	if _, err := zfs.Open(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	cfg.GUID = "13"
	if _, err := zfs.Open(t.Context(), cfg); !fault.Is(err, fault.Conflict) {
		t.Errorf("another guid: %v", err)
	}
	d := h.open()
	h.change(func(k *zfstest.Disk) { k.Datasets[base].GUID = 99 })
	if _, err := d.Inspect(t.Context()); !fault.Is(err, fault.Conflict) {
		t.Errorf("replaced: %v", err)
	}
	h.change(func(k *zfstest.Disk) { k.Datasets[base].Type, k.Datasets[base].VolSize = "volume", mib })
	if _, err := zfs.Open(t.Context(), h.config()); !fault.Is(err, fault.Conflict) {
		t.Errorf("a zvol: %v", err)
	}
	h.change(func(k *zfstest.Disk) { delete(k.Datasets, base) })
	if _, err := zfs.Open(t.Context(), h.config()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "imported") {
		t.Errorf("none: %v", err)
	}
	for _, name := range []string{
		"", "-r", "tank/", "/tank", "tank//x", "tank/-x", "tank@s", "tank/a b", "tank/a@b", "tank/a#b", "tank/..", "tank/%x",
		"tank/" + strings.Repeat("x", 120), "tank\n",
	} {
		cfg.Dataset = name
		if _, err := zfs.Open(t.Context(), cfg); !fault.Is(err, fault.Invalid) || zfs.CheckDataset(name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	cfg = h.config()
	cfg.Zfs = filepath.Join(h.dir, "none")
	if _, err := zfs.Open(t.Context(), cfg); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no program: %v", err)
	}
}

func TestTheConditionOfThePool(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d := h.open()
	for state, want := range map[string]driver.Health{
		"ONLINE": driver.Healthy, "DEGRADED": driver.Warning, "FAULTED": driver.Critical, "SUSPENDED": driver.Critical,
	} {
		h.change(func(k *zfstest.Disk) { k.Health = state })
		c, err := d.Inspect(t.Context())
		if err != nil || c.Health != want || c.Health == driver.Healthy != (c.Summary == "") || c.NativeID != "12" ||
			c.Pools[0].Kind != driver.PoolZFS || c.Pools[0].Max <= 0 {
			t.Errorf("%s: %+v, %v", state, c, err)
		}
	}
}

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
