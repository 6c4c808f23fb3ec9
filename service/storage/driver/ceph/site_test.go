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
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
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

// gone checks that nothing is left of an image.
func (s *site) gone(t *testing.T, n driver.Name) {
	t.Helper()
	if out, err := exec.Command("rbd", "-c", s.Conf, "-p", s.Pool, "info", n.Native).CombinedOutput(); err == nil {
		t.Errorf("it is still there: %s", out)
	}
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
