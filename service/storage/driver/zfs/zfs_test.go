package zfs_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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
