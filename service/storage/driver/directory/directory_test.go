//go:build linux

package directory_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
	"github.com/mainstay-infra/mainstay/service/storage/driver/drivertest"
)

const mib = 1 << 20

// folder is a driver on a folder.
type folder struct {
	*testing.T
	*directory.Driver
	path string
}

func open(t *testing.T, path string) *folder {
	t.Helper()
	d, err := directory.Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return &folder{t, d, path}
}

// at returns the path of something in a volume or a snapshot.
func (f *folder) at(shelf string, n driver.Name, names ...string) string {
	return filepath.Join(append([]string{f.path, shelf, n.Native}, names...)...)
}

func (f *folder) volume(kind driver.Kind) driver.Name {
	f.Helper()
	name := driver.Name{Pool: directory.PoolName, Native: driver.VolumeName(uuid.NewString())}
	if _, err := f.CreateVolume(f.Context(), driver.VolumeSpec{Name: name, Kind: kind, Size: 8 * mib}); err != nil {
		f.Fatal(err)
	}
	return name
}

func (f *folder) snapshot(of driver.Name) (driver.Snapshot, error) {
	return f.CreateSnapshot(f.Context(), of, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, func(float64) {})
}

func (f *folder) taken(of driver.Name) driver.Name {
	f.Helper()
	s, err := f.snapshot(of)
	if err != nil {
		f.Fatal(err)
	}
	return s.Name
}

func (f *folder) names(dir string) (names []string) {
	f.Helper()
	entries, err := os.ReadDir(filepath.Join(f.path, dir))
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func write(t *testing.T, path string, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestBlockVolumesInAFolder(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Backend {
		f := open(t, t.TempDir())
		return drivertest.Backend{
			Driver: f.Driver, Pool: directory.PoolName, Kind: driver.Block,
			Write: func(t *testing.T, v driver.Name, at int64, content []byte) {
				t.Helper()
				file, err := os.OpenFile(f.at("volumes", v, "data"), os.O_WRONLY, 0)
				if err == nil {
					_, err = file.WriteAt(content, at)
					err = errors.Join(err, file.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			Read: func(t *testing.T, v driver.Name, at int64, length int) []byte {
				t.Helper()
				file, err := os.Open(f.at("volumes", v, "data"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = file.Close() }()
				content := make([]byte, length)
				if _, err := file.ReadAt(content, at); err != nil {
					t.Fatal(err)
				}
				return content
			},
		}
	})
}

// Volumes for files have no offsets: each offset is a file.
func TestVolumesForFilesInAFolder(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Backend {
		f := open(t, t.TempDir())
		at := func(v driver.Name, at int64) string {
			return f.at("volumes", v, "content", "at", strings.Repeat("0", int(at/mib)+1))
		}
		return drivertest.Backend{
			Driver: f.Driver, Pool: directory.PoolName, Kind: driver.Filesystem,
			Write: func(t *testing.T, v driver.Name, offset int64, content []byte) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(at(v, offset)), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, at(v, offset), string(content))
			},
			Read: func(t *testing.T, v driver.Name, offset int64, _ int) []byte {
				t.Helper()
				content, err := os.ReadFile(at(v, offset))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				return content
			},
		}
	})
}

func TestWhatUsersMakeOfAFolderIsCopiedAsItIs(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	v := f.volume(driver.Filesystem)
	in := func(names ...string) string { return f.at("volumes", v, append([]string{"content"}, names...)...) }
	if info, err := os.Stat(in()); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := errors.Join(os.Mkdir(in("sub"), 0o750), os.Mkdir(in("sub", "deep"), 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, in("sub", "file"), "content")
	for name, target := range map[string]string{"out": "/etc/passwd", "up": "../../../..", "loop": "."} {
		if err := os.Symlink(target, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Link(in("sub", "file"), in("second name")), unix.Mkfifo(in("pipe"), 0o600),
		os.WriteFile(in("sparse"), []byte("x"), 0o600), os.Truncate(in("sparse"), 1<<30),
	); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(in("sub", "file"), "user.note", []byte("kept"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	s := f.taken(v)
	out := func(names ...string) string { return f.at("snapshots", s, append([]string{"content"}, names...)...) }
	if got := read(t, out("sub", "file")); got != "content" {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]string{"out": "/etc/passwd", "up": "../../../..", "loop": "."} {
		if got, err := os.Readlink(out(name)); err != nil || got != want {
			t.Errorf("the link %s: %q, %v", name, got, err)
		}
	}
	one, err := os.Stat(out("sub", "file"))
	two, err2 := os.Stat(out("second name"))
	if err != nil || err2 != nil || !os.SameFile(one, two) || one.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v, %v, %v", one, two, err, err2)
	}
	was, err := os.Stat(in("sub"))
	is, err2 := os.Stat(out("sub"))
	if err != nil || err2 != nil || was.Mode() != is.Mode() || !was.ModTime().Equal(is.ModTime()) {
		t.Errorf("%v, %v, %v, %v", was, is, err, err2)
	}
	if _, err := os.Lstat(out("pipe")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pipe was copied: %v", err)
	}
	note := make([]byte, 10)
	if n, err := unix.Getxattr(out("sub", "file"), "user.note", note); err == nil && string(note[:n]) != "kept" {
		t.Errorf("%q", note[:n])
	}
	var stat unix.Stat_t
	if err := unix.Stat(out("sparse"), &stat); err != nil || stat.Size != 1<<30 || stat.Blocks > 1<<10 {
		t.Errorf("%d bytes in %d blocks, %v", stat.Size, stat.Blocks, err)
	}
}

func TestUsersOfAVolumeLeadNobodyOutOfIt(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "secret")
	f := open(t, t.TempDir())
	v := f.volume(driver.Filesystem)
	// The content itself, then the data of a block volume, become links.
	if err := errors.Join(
		os.Remove(f.at("volumes", v, "content")), os.Symlink(outside, f.at("volumes", v, "content")),
	); err != nil {
		t.Fatal(err)
	}
	if s, err := f.snapshot(v); err == nil {
		t.Errorf("%+v holds %v", s, f.names("snapshots"))
	}
	b := f.volume(driver.Block)
	if err := errors.Join(
		os.Remove(f.at("volumes", b, "data")), os.Symlink(filepath.Join(outside, "secret"), f.at("volumes", b, "data")),
	); err != nil {
		t.Fatal(err)
	}
	if s, err := f.snapshot(b); err == nil {
		t.Errorf("%+v", s)
	}
	if _, err := f.ExpandVolume(t.Context(), b, 64*mib); err == nil {
		t.Error("a link was expanded")
	}
	if got := read(t, filepath.Join(outside, "secret")); got != "secret" {
		t.Errorf("%.20q", got)
	}
	for _, n := range []driver.Name{v, b} {
		if err := f.DeleteVolume(t.Context(), n); err != nil {
			t.Error(err)
		}
	}
	if got := read(t, filepath.Join(outside, "secret")); got != "secret" {
		t.Errorf("%.20q", got)
	}
	if left := append(f.names("incoming"), f.names("trash")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWhatOthersDoToTheDataOfAVolumeIsTold(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(data string) error{
		"cut off":       func(data string) error { return os.Truncate(data, 5) },
		"removed":       os.Remove,
		"made a folder": func(data string) error { return errors.Join(os.Remove(data), os.Mkdir(data, 0o700)) },
		"made a link":   func(data string) error { return errors.Join(os.Remove(data), os.Symlink("/etc/passwd", data)) },
	} {
		f := open(t, t.TempDir())
		v, other := f.volume(driver.Block), f.volume(driver.Block)
		if err := change(f.at("volumes", v, "data")); err != nil {
			t.Fatal(err)
		}
		_, looked := f.Volume(t.Context(), v)
		_, taken := f.snapshot(v)
		_, expanded := f.ExpandVolume(t.Context(), v, 64*mib)
		for what, err := range map[string]error{"looked": looked, "taken": taken, "expanded": expanded} {
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the volume") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		told := map[string]bool{}
		if err := f.EachVolume(t.Context(), func(v driver.Volume) error {
			told[v.Native] = v.Damaged
			return nil
		}); err != nil || !told[v.Native] || told[other.Native] || len(told) != 2 {
			t.Errorf("%s: %v, %v", name, told, err)
		}
		if err := f.DeleteVolume(t.Context(), v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinksInThePlaceOfItsFoldersAreTold(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"volumes", "snapshots", "incoming", "deleted"} {
		outside := t.TempDir()
		f := open(t, t.TempDir())
		v := f.volume(driver.Block)
		at := filepath.Join(f.path, name)
		if err := errors.Join(os.Rename(at, at+".moved"), os.Symlink(outside, at)); err != nil {
			t.Fatal(err)
		}
		_, taken := f.snapshot(v)
		_, made := f.CreateVolume(t.Context(), driver.VolumeSpec{
			Name: driver.Name{Pool: directory.PoolName, Native: driver.VolumeName(uuid.NewString())}, Kind: driver.Block, Size: mib,
		})
		discarded := f.DiscardVolume(t.Context(), v, time.Hour)
		for what, err := range map[string]error{"taken": taken, "made": made, "discarded": discarded} {
			if err != nil && fault.Is(err, fault.Internal) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if taken == nil && made == nil && discarded == nil {
			t.Errorf("%s: nothing has failed", name)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Errorf("%s: written outside: %v, %v", name, left, err)
		}
	}
}

func TestFoldersThatAreNestedWithoutEndAreRefused(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	v := f.volume(driver.Filesystem)
	at, err := os.OpenRoot(f.at("volumes", v, "content"))
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		if err := at.Mkdir("d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("d")
		if err = errors.Join(err, at.Close()); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	_ = at.Close()
	if _, err := f.snapshot(v); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if err := f.DeleteVolume(t.Context(), v); err != nil {
		t.Error(err)
	}
	if left := append(f.names("incoming"), f.names("trash")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWhatAKilledProcessHasLeftIsRemoved(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	v := f.volume(driver.Block)
	write(t, filepath.Join(f.path, "trash", "x"), "half removed")
	name := driver.Name{Pool: directory.PoolName, Native: driver.VolumeName(uuid.NewString())}
	half := filepath.Join(f.path, "incoming", name.Native+".killed")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(half, "data"), "half made")
	if _, err := f.Volume(t.Context(), name); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is half made is there: %v", err)
	}
	if _, err := f.CreateVolume(t.Context(), driver.VolumeSpec{Name: name, Kind: driver.Block, Size: mib}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, f.at("volumes", name, "data")); got != string(make([]byte, mib)) {
		t.Errorf("%.20q", got)
	}
	open(t, f.path)
	if left := append(f.names("incoming"), f.names("trash")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := f.Volume(t.Context(), v); err != nil {
		t.Error(err)
	}
}

// A process that was paused finds that another one has made the volume.
func TestAnAttemptThatAnotherHasTakenOverChangesNothing(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	v := f.volume(driver.Block)
	write(t, f.at("volumes", v, "data"), strings.Repeat("x", 2*mib))
	native := driver.SnapshotName(uuid.NewString())
	taken := false
	_, err := f.CreateSnapshot(t.Context(), v, driver.Name{Native: native}, func(float64) {
		if taken {
			return
		}
		taken = true
		if _, err := open(t, f.path).CreateSnapshot(t.Context(), v, driver.Name{Native: native}, func(float64) {}); err != nil {
			t.Error(err)
		}
	})
	if !taken {
		t.Skip("the file system shares blocks")
	}
	if err == nil {
		t.Error("both attempts have made it")
	}
	got := read(t, f.at("snapshots", driver.Name{Native: native}, "data"))
	if got != strings.Repeat("x", 2*mib) {
		t.Errorf("%.20q", got)
	}
	if left := f.names("incoming"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWhatTheGatewayDidNotMakeIsTakenInAndLeftAlone(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "photos"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "disk.img"), "0123456789")
	write(t, filepath.Join(path, "README"), "not a volume")
	write(t, filepath.Join(path, ".hidden.img"), "not a volume")
	if err := os.Symlink("/etc/passwd", filepath.Join(path, "link.img")); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	if err := os.Mkdir(filepath.Join(path, "volumes", "somebody's"), 0o755); err != nil {
		t.Fatal(err)
	}
	var found []string
	if err := f.EachVolume(t.Context(), func(v driver.Volume) error {
		if !v.Foreign {
			t.Errorf("%+v", v)
		}
		found = append(found, v.Native+" "+string(v.Kind))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	if want := []string{"disk.img block", "photos filesystem"}; !slices.Equal(found, want) {
		t.Errorf("%q", found)
	}
	for _, native := range []string{"photos", "disk.img", "README"} {
		if err := f.DeleteVolume(t.Context(), driver.Name{Pool: directory.PoolName, Native: native}); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(path, native)); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatOthersMakeInThePlaceOfAVolumeIsNotDeletedWithIt(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	f := open(t, path)
	var names []driver.Name
	for range 2 {
		n := driver.Name{Pool: directory.PoolName, Native: driver.VolumeName(uuid.NewString())}
		if _, err := f.CreateVolume(t.Context(), driver.VolumeSpec{Name: n, Kind: driver.Block, Size: mib}); err != nil {
			t.Fatal(err)
		}
		names = append(names, n)
	}
	moved, trashed := names[0], names[1]
	if err := os.Rename(filepath.Join(path, "volumes", moved.Native), filepath.Join(path, "away")); err != nil {
		t.Fatal(err)
	}
	if err := f.DiscardVolume(t.Context(), trashed, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, n := range []driver.Name{moved, trashed} {
		place := filepath.Join(path, "volumes", n.Native)
		if err := os.Mkdir(place, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(place, "data"), "precious")
		n.Complete = true
		if err := f.DeleteVolume(t.Context(), n); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		if got, err := os.ReadFile(filepath.Join(place, "data")); err != nil || string(got) != "precious" {
			t.Errorf("%q, %v", got, err)
		}
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
	}
	trashed.Complete = true
	if err := f.DeleteVolume(t.Context(), trashed); err != nil {
		t.Error(err)
	}
}

func TestADamagedVolumeIsToldAndHidesNoOther(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "{", `{"kind":"tape"}`, strings.Repeat(" ", 1<<20)} {
		f := open(t, t.TempDir())
		v, other := f.volume(driver.Block), f.volume(driver.Block)
		write(t, f.at("volumes", v, "volume.json"), content)
		if _, err := f.Volume(t.Context(), v); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%.10q: %v", content, err)
		}
		if _, err := f.Volume(t.Context(), other); err != nil {
			t.Error(err)
		}
		damaged := map[string]bool{}
		if err := f.EachVolume(t.Context(), func(v driver.Volume) error {
			damaged[v.Native] = v.Damaged
			return nil
		}); err != nil || len(damaged) != 2 || !damaged[v.Native] || damaged[other.Native] {
			t.Errorf("%v, %v", damaged, err)
		}
	}
}

func TestAFolderKeepsItsID(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	one, err := open(t, path).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if two, err := open(t, path).Inspect(t.Context()); err != nil || two.NativeID != one.NativeID {
		t.Errorf("%+v, %v", two, err)
	}
	// In place of a folder whose file system is not mounted, nothing is made.
	other := t.TempDir()
	if d, err := directory.Open(other, one.NativeID); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v, %v", d, err)
	}
	if entries, err := os.ReadDir(other); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	open(t, other)
	if d, err := directory.Open(other, one.NativeID); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := directory.Open(path, one.NativeID); err != nil || d.Close() != nil {
		t.Error(err)
	}
	write(t, filepath.Join(path, "mainstay.json"), "{}")
	for name, path := range map[string]string{"damaged": path, "gone": filepath.Join(path, "none", "none")} {
		if d, err := directory.Open(path, ""); !fault.Is(err, fault.Unavailable) || strings.Contains(fault.From(err).Message, "/") {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

func TestAFolderThatIsReplacedMeanwhileIsNoticed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "export")
	f := open(t, path)
	v := f.volume(driver.Block)
	for name, replace := range map[string]func() error{
		"by an empty one": func() error { return os.Mkdir(path, 0o700) },
		"by nothing":      func() error { return nil },
		"by a link":       func() error { return os.Symlink(t.TempDir(), path) },
		"by another one": func() error {
			d, err := directory.Open(path, "")
			if err != nil {
				return err
			}
			return d.Close()
		},
	} {
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		_, inspected := f.Inspect(t.Context())
		_, made := f.CreateVolume(t.Context(), driver.VolumeSpec{
			Name: driver.Name{Pool: directory.PoolName, Native: driver.VolumeName(uuid.NewString())}, Kind: driver.Block, Size: mib,
		})
		_, taken := f.snapshot(v)
		for what, err := range map[string]error{
			"inspected": inspected, "made": made, "taken": taken, "deleted": f.DeleteVolume(t.Context(), v),
			"discarded": f.DiscardVolume(t.Context(), v, time.Hour),
		} {
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if err := errors.Join(os.RemoveAll(path), os.Rename(path+".moved", path)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Inspect(t.Context()); err != nil {
			t.Errorf("%s, and back: %v", name, err)
		}
	}
	for name, content := range map[string]string{"another id": `{"id":"` + uuid.NewString() + `"}`, "garbage": "{", "huge": strings.Repeat(" ", 1<<20)} {
		write(t, filepath.Join(path, "mainstay.json"), content)
		if _, err := f.Inspect(t.Context()); err == nil {
			t.Errorf("%s was not noticed", name)
		}
	}
}

func TestACopyThatTheStorageHasNoRoomForLeavesNothing(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=32m"); err != nil {
		require.Missing(t, "file systems cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	f := open(t, path)
	for _, kind := range []driver.Kind{driver.Block, driver.Filesystem} {
		v := f.volume(kind)
		file := f.at("volumes", v, "data")
		if kind == driver.Filesystem {
			file = f.at("volumes", v, "content", "file")
		}
		if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 20*mib), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.snapshot(v); !fault.Is(err, fault.StorageFailed) {
			t.Errorf("%s: %v", kind, err)
		}
		if left := append(f.names("incoming"), f.names("snapshots")...); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		// Deletion needs no room.
		_ = os.WriteFile(filepath.Join(path, "rest"), bytes.Repeat([]byte("x"), 20*mib), 0o600)
		if err := f.DeleteVolume(t.Context(), v); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		_ = os.Remove(filepath.Join(path, "rest"))
	}
}

func TestACopyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	v := f.volume(driver.Filesystem)
	for i := range 50 {
		write(t, f.at("volumes", v, "content", strings.Repeat("f", i+1)), "content")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("cancelled by a test")
	_, err := f.CreateSnapshot(ctx, v, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, func(float64) { cancel(why) })
	if !errors.Is(err, why) {
		t.Skipf("the file system shares blocks: %v", err)
	}
	if left := append(f.names("incoming"), f.names("snapshots")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
