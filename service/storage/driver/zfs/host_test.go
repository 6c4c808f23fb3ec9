package zfs_test

import (
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

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs/zfstest"
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
