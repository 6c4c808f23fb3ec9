// Package drivertest is the suite that every driver of a storage system passes.
//
// It imports driver.
package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Backend is what a driver offers to the suite.
type Backend struct {
	Driver driver.Driver
	Pool   string
	Kind   driver.Kind // of the volumes that the suite makes
	// Write writes to a volume as its users do, and Read reads.
	Write func(t *testing.T, volume driver.Name, at int64, content []byte)
	Read  func(t *testing.T, volume driver.Name, at int64, length int) []byte
}

const mib = 1 << 20

// Run runs the suite. open returns a backend for one test.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Backend){
		"tells about itself":                 tellsAboutItself,
		"makes a volume once":                makesAVolumeOnce,
		"expands volumes":                    expandsVolumes,
		"deletes volumes":                    deletesVolumes,
		"lists volumes":                      listsVolumes,
		"the trash brings volumes back":      trashBringsBack,
		"one volume takes another's place":   oneTakesAnothersPlace,
		"refuses names that are not its own": refusesNames,
		"snapshots keep what was":            snapshotsKeepWhatWas,
		"clones have what was":               clonesHaveWhatWas,
		"copies have what was":               copiesHaveWhatWas,
		"what is cancelled leaves nothing":   cancelledLeavesNothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func (b *Backend) volumes(t *testing.T) driver.Volumes {
	t.Helper()
	v, ok := b.Driver.(driver.Volumes)
	if !ok {
		t.Skip("the driver makes no volumes")
	}
	return v
}

func (b *Backend) snapshots(t *testing.T) driver.Snapshots {
	t.Helper()
	s, ok := b.Driver.(driver.Snapshots)
	if !ok {
		t.Skip("the driver makes no snapshots")
	}
	return s
}

func (b *Backend) name() driver.Name {
	return driver.Name{Pool: b.Pool, Native: driver.VolumeName(uuid.NewString())}
}

// snapshotName returns a name for a snapshot.
func snapshotName() driver.Name { return driver.Name{Native: driver.SnapshotName(uuid.NewString())} }

// make makes a volume of 8 MiB.
func (b *Backend) make(t *testing.T) driver.Volume {
	t.Helper()
	v, err := b.volumes(t).CreateVolume(t.Context(), driver.VolumeSpec{Name: b.name(), Kind: b.Kind, Size: 8 * mib})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (b *Backend) holds(t *testing.T, volume driver.Name, at int64, want []byte) {
	t.Helper()
	if got := b.Read(t, volume, at, len(want)); !bytes.Equal(got, want) {
		t.Errorf("%s holds %.20q at %d, want %.20q", volume.Native, got, at, want)
	}
}

func quiet(float64) {}

func tellsAboutItself(t *testing.T, b Backend) {
	first, err := b.Driver.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Driver.Inspect(t.Context())
	if err != nil || first.NativeID == "" || first.NativeID != again.NativeID {
		t.Errorf("%+v, then %+v, %v", first, again, err)
	}
	if first.Health == "" || first.Raw <= 0 || first.Used < 0 || first.Available <= 0 || first.Available > first.Raw {
		t.Errorf("%+v", first)
	}
	if !slices.ContainsFunc(first.Pools, func(p driver.Pool) bool { return p.Name == b.Pool }) {
		t.Errorf("no pool %s: %+v", b.Pool, first.Pools)
	}
}

func makesAVolumeOnce(t *testing.T, b Backend) {
	v := b.make(t)
	if v.Pool != b.Pool || v.Kind != b.Kind || v.Size != 8*mib || v.Foreign {
		t.Errorf("%+v", v)
	}
	b.Write(t, v.Name, mib, []byte("something"))
	again, err := b.volumes(t).CreateVolume(t.Context(), driver.VolumeSpec{Name: v.Name, Kind: b.Kind, Size: 16 * mib})
	if err != nil || again.Size != 8*mib {
		t.Errorf("%+v, %v", again, err)
	}
	b.holds(t, v.Name, mib, []byte("something"))
	spec := driver.VolumeSpec{Name: b.name(), Kind: "tape", Size: mib}
	if _, err := b.volumes(t).CreateVolume(t.Context(), spec); !fault.Is(err, fault.Invalid) {
		t.Errorf("an unknown kind: %v", err)
	}
}

func expandsVolumes(t *testing.T, b Backend) {
	v := b.make(t)
	b.Write(t, v.Name, 0, []byte("begin"))
	for _, step := range []struct{ size, want int64 }{{20 * mib, 20 * mib}, {20 * mib, 20 * mib}, {mib, 20 * mib}} {
		got, err := b.volumes(t).ExpandVolume(t.Context(), v.Name, step.size)
		if err != nil || got.Size != step.want {
			t.Errorf("expanded to %d: %+v, %v", step.size, got, err)
		}
	}
	b.holds(t, v.Name, 0, []byte("begin"))
	b.Write(t, v.Name, 15*mib, []byte("in the new part"))
	b.holds(t, v.Name, 15*mib, []byte("in the new part"))
	if _, err := b.volumes(t).ExpandVolume(t.Context(), b.name(), 20*mib); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that there is not: %v", err)
	}
}

func deletesVolumes(t *testing.T, b Backend) {
	v, other := b.make(t), b.make(t)
	b.Write(t, v.Name, 0, []byte("secret"))
	for range 2 {
		if err := b.volumes(t).DeleteVolume(t.Context(), v.Name); err != nil {
			t.Error(err)
		}
		if _, err := b.volumes(t).Volume(t.Context(), v.Name); !fault.Is(err, fault.NotFound) {
			t.Errorf("after its deletion: %v", err)
		}
	}
	if got, err := b.volumes(t).Volume(t.Context(), other.Name); err != nil || got.Size != other.Size {
		t.Errorf("the other one: %+v, %v", got, err)
	}
	// One that is made again under its name is empty.
	if _, err := b.volumes(t).CreateVolume(
		t.Context(), driver.VolumeSpec{Name: v.Name, Kind: b.Kind, Size: 8 * mib},
	); err != nil {
		t.Fatal(err)
	}
	if got := b.Read(t, v.Name, 0, 6); bytes.Contains(got, []byte("secret")) {
		t.Errorf("a new volume holds %q", got)
	}
}

func listsVolumes(t *testing.T, b Backend) {
	want := map[string]bool{}
	for range 3 {
		want[b.make(t).Native] = true
	}
	found := 0
	if err := b.Driver.EachVolume(t.Context(), func(v driver.Volume) error {
		if want[v.Native] {
			found++
			if v.Size != 8*mib || v.Kind != b.Kind || v.Foreign {
				t.Errorf("%+v", v)
			}
		}
		return nil
	}); err != nil || found != 3 {
		t.Errorf("%d of 3, %v", found, err)
	}
	stop := fault.New(fault.Conflict, "enough")
	if err := b.Driver.EachVolume(t.Context(), func(driver.Volume) error { return stop }); !fault.Is(err, fault.Conflict) {
		t.Errorf("it does not end with the error of its caller: %v", err)
	}
}

func trashBringsBack(t *testing.T, b Backend) {
	trash, ok := b.Driver.(driver.Trash)
	if !ok {
		t.Skip("the driver has no trash")
	}
	v, lost := b.make(t), b.make(t)
	b.Write(t, v.Name, mib, []byte("kept"))
	hidden := func(name driver.Name) {
		t.Helper()
		if _, err := b.volumes(t).Volume(t.Context(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("in the trash: %v", err)
		}
		if err := b.Driver.EachVolume(t.Context(), func(other driver.Volume) error {
			if other.Native == name.Native {
				t.Errorf("a volume in the trash is listed: %+v", other)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := trash.DiscardVolume(t.Context(), v.Name, time.Hour); err != nil {
			t.Fatal(err)
		}
		hidden(v.Name)
	}
	for range 2 {
		got, err := trash.UndeleteVolume(t.Context(), v.Name)
		if err != nil || got.Native != v.Native || got.Size != v.Size || got.Foreign {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	b.holds(t, v.Name, mib, []byte("kept"))
	if err := trash.DiscardVolume(t.Context(), lost.Name, time.Hour); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.volumes(t).DeleteVolume(t.Context(), lost.Name); err != nil {
			t.Fatal(err)
		}
	}
	hidden(lost.Name)
	if _, err := trash.UndeleteVolume(t.Context(), lost.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that was removed for ever: %v", err)
	}
	if err := trash.DiscardVolume(t.Context(), b.name(), time.Hour); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that there never was: %v", err)
	}
}

func oneTakesAnothersPlace(t *testing.T, b Backend) {
	replacer, ok := b.Driver.(driver.Replacer)
	if !ok {
		t.Skip("the driver replaces no volumes")
	}
	old, fresh := b.make(t), b.make(t)
	b.Write(t, old.Name, 0, []byte("old"))
	b.Write(t, fresh.Name, 0, []byte("new"))
	for range 2 {
		if err := replacer.ReplaceVolume(t.Context(), old.Name, fresh.Name); err != nil {
			t.Fatal(err)
		}
		b.holds(t, old.Name, 0, []byte("new"))
		if v, err := b.volumes(t).Volume(t.Context(), old.Name); err != nil || v.Native != old.Native || v.Size != old.Size {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := b.volumes(t).Volume(t.Context(), fresh.Name); !fault.Is(err, fault.NotFound) {
			t.Errorf("it is still there under its own name: %v", err)
		}
	}
	// After a call that was broken off, only the new one is there.
	other := b.make(t)
	b.Write(t, other.Name, 0, []byte("3rd"))
	if err := b.volumes(t).DeleteVolume(t.Context(), old.Name); err != nil {
		t.Fatal(err)
	}
	if err := replacer.ReplaceVolume(t.Context(), old.Name, other.Name); err != nil {
		t.Fatal(err)
	}
	b.holds(t, old.Name, 0, []byte("3rd"))
	if err := replacer.ReplaceVolume(t.Context(), b.name(), b.name()); !fault.Is(err, fault.NotFound) {
		t.Errorf("neither is there: %v", err)
	}
	b.holds(t, old.Name, 0, []byte("3rd"))
}

func refusesNames(t *testing.T, b Backend) {
	for _, native := range []string{
		"", ".", "..", "../x", "x/y", "a@b", "vol-", "vol-\x00", "snap-x", "VOL-" + uuid.NewString(),
		"vol-" + uuid.NewString() + "/..",
	} {
		name := driver.Name{Pool: b.Pool, Native: native}
		spec := driver.VolumeSpec{Name: name, Kind: b.Kind, Size: mib}
		if _, err := b.volumes(t).CreateVolume(t.Context(), spec); err == nil {
			t.Errorf("made %q", native)
		}
		if _, err := b.volumes(t).Volume(t.Context(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", native, err)
		}
		if err := b.volumes(t).DeleteVolume(t.Context(), name); err != nil && !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", native, err)
		}
	}
	if _, err := b.volumes(t).Volume(t.Context(), driver.Name{Pool: "another", Native: b.name().Native}); !fault.Is(
		err, fault.NotFound,
	) {
		t.Errorf("a pool that there is not: %v", err)
	}
}

func snapshotsKeepWhatWas(t *testing.T, b Backend) {
	snapshots, v := b.snapshots(t), b.make(t)
	b.Write(t, v.Name, 0, []byte("before"))
	native := driver.SnapshotName(uuid.NewString())
	var last float64
	s, err := snapshots.CreateSnapshot(t.Context(), v.Name, driver.Name{Native: native}, func(p float64) { last = p })
	if err != nil || s.Source != v.Native || s.Size != v.Size || s.Kind != b.Kind || s.Consistency == "" ||
		last < 0 || last > 1 {
		t.Fatalf("%+v, %v, %v", s, last, err)
	}
	b.Write(t, v.Name, 0, []byte("after!"))
	again, err := snapshots.CreateSnapshot(t.Context(), v.Name, driver.Name{Native: native}, quiet)
	if err != nil || again.Name != s.Name {
		t.Errorf("again: %+v, %v", again, err)
	}
	clone := b.clone(t, s, 0)
	b.holds(t, clone.Name, 0, []byte("before"))
	b.holds(t, v.Name, 0, []byte("after!"))
	for range 2 {
		if err := snapshots.DeleteSnapshot(t.Context(), s.Name); err != nil {
			t.Error(err)
		}
	}
	if _, err := snapshots.Snapshot(t.Context(), s.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("after its deletion: %v", err)
	}
	b.holds(t, clone.Name, 0, []byte("before"))
	_, err = snapshots.CreateSnapshot(t.Context(), b.name(), snapshotName(), quiet)
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("of a volume that there is not: %v", err)
	}
}

func (b *Backend) clone(t *testing.T, s driver.Snapshot, size int64) driver.Volume {
	t.Helper()
	cloner, ok := b.Driver.(driver.Cloner)
	if !ok {
		t.Skip("the driver makes no clones")
	}
	spec := driver.VolumeSpec{Name: b.name(), Kind: s.Kind, Size: size}
	v, err := cloner.CloneSnapshot(t.Context(), s.Name, spec, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cloner.CloneSnapshot(t.Context(), s.Name, spec, quiet); err != nil || again.Size != v.Size {
		t.Errorf("again: %+v, %v", again, err)
	}
	return v
}

func clonesHaveWhatWas(t *testing.T, b Backend) {
	snapshots, v := b.snapshots(t), b.make(t)
	b.Write(t, v.Name, 3*mib, []byte("content"))
	s, err := snapshots.CreateSnapshot(t.Context(), v.Name, snapshotName(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	same, larger := b.clone(t, s, mib), b.clone(t, s, 32*mib)
	if same.Size != 8*mib || larger.Size != 32*mib {
		t.Errorf("%+v, %+v", same, larger)
	}
	b.Write(t, same.Name, 3*mib, []byte("another"))
	b.holds(t, larger.Name, 3*mib, []byte("content"))
	b.holds(t, v.Name, 3*mib, []byte("content"))
	// The volume may go before its snapshot.
	if err := b.volumes(t).DeleteVolume(t.Context(), v.Name); err != nil {
		t.Fatal(err)
	}
	b.holds(t, b.clone(t, s, 0).Name, 3*mib, []byte("content"))
}

// copiesHaveWhatWas copies a snapshot, by what it tells of its content, to a new volume.
func copiesHaveWhatWas(t *testing.T, b Backend) {
	copier, ok := b.Driver.(driver.Copier)
	if !ok || b.Kind != driver.Block {
		t.Skip("the driver has no block volumes that can be copied")
	}
	snapshots, v := b.snapshots(t), b.make(t)
	b.Write(t, v.Name, 0, []byte("first"))
	b.Write(t, v.Name, 8*mib-4, []byte("last"))
	snap := func() driver.Name {
		s, err := snapshots.CreateSnapshot(t.Context(), v.Name, snapshotName(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		return s.Name
	}
	first := snap()
	b.Write(t, v.Name, 5*mib, []byte("changed"))
	second := snap()
	spec := driver.VolumeSpec{Name: b.name(), Kind: driver.Block, Size: 16 * mib}
	if err := copier.ReadSnapshot(t.Context(), first, func(c driver.Content) error {
		broken := errors.New("broken off")
		_, err := copier.FillVolume(t.Context(), spec, func(io.WriterAt) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if _, err := b.volumes(t).Volume(t.Context(), spec.Name); !fault.Is(err, fault.NotFound) {
			t.Errorf("what was broken off: %v", err)
		}
		made, err := copier.FillVolume(t.Context(), spec, func(w io.WriterAt) error { return copyContent(t, c, w) })
		if err == nil && made.Size != 16*mib {
			t.Errorf("%+v", made)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int64]string{
		0: "first", 8*mib - 4: "last", 5 * mib: "\x00\x00\x00\x00\x00\x00\x00", 9 * mib: "\x00",
	} {
		b.holds(t, spec.Name, at, []byte(want))
	}
	again := func(io.WriterAt) error { t.Error("a volume that is there is filled again"); return nil }
	if made, err := copier.FillVolume(t.Context(), spec, again); err != nil || made.Size != 16*mib {
		t.Errorf("%+v, %v", made, err)
	}
	// What has changed is told exactly enough, or not at all.
	if err := copier.ReadSnapshot(t.Context(), second, func(c driver.Content) error {
		var found bool
		for e, err := range c.Extents(t.Context(), first.Native) {
			if fault.Is(err, fault.NotFound) && !c.Compares() {
				return nil
			}
			if err != nil {
				return err
			}
			found = found || e.Offset <= 5*mib && e.Offset+e.Length >= 5*mib+7
			if e.Offset < 4*mib {
				t.Errorf("%+v has not changed", e)
			}
		}
		if !found {
			t.Error("the change is not told")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	err := copier.ReadSnapshot(t.Context(), b.name(), func(driver.Content) error { return nil })
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("of a snapshot that there is not: %v", err)
	}
}

// copyContent copies what a snapshot tells that it holds.
func copyContent(t *testing.T, from driver.Content, to io.WriterAt) error {
	if from.Size() != 8*mib {
		t.Errorf("%d bytes", from.Size())
	}
	last := int64(0)
	for e, err := range from.Extents(t.Context(), "") {
		if err != nil {
			return err
		}
		if e.Offset < last || e.Length <= 0 {
			t.Errorf("%+v after %d", e, last)
		}
		last = e.Offset + e.Length
		piece := make([]byte, e.Length)
		if n, err := from.ReadAt(piece, e.Offset); n != len(piece) {
			return err
		}
		if _, err := to.WriteAt(piece, e.Offset); err != nil {
			return err
		}
	}
	_, err := from.ReadAt(make([]byte, 2), 8*mib-1)
	if !errors.Is(err, io.EOF) {
		t.Errorf("beyond the end: %v", err)
	}
	return nil
}

func cancelledLeavesNothing(t *testing.T, b Backend) {
	v := b.make(t)
	b.Write(t, v.Name, 0, []byte("content"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name := b.name()
	if _, err := b.volumes(t).CreateVolume(ctx, driver.VolumeSpec{Name: name, Kind: b.Kind, Size: mib}); err == nil {
		t.Error("a volume was made")
	}
	if _, err := b.volumes(t).Volume(t.Context(), name); !fault.Is(err, fault.NotFound) {
		t.Errorf("the volume: %v", err)
	}
	native := driver.SnapshotName(uuid.NewString())
	if _, err := b.snapshots(t).CreateSnapshot(ctx, v.Name, driver.Name{Native: native}, quiet); err == nil {
		t.Error("a snapshot was made")
	}
	_, err := b.snapshots(t).Snapshot(t.Context(), driver.Name{Pool: b.Pool, Native: native})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("the snapshot: %v", err)
	}
}
