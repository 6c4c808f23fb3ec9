package nbd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// serve runs qemu-nbd over an image of 64 MiB, and returns its socket and its path.
func serve(t *testing.T, options ...string) (socket, image string) {
	t.Helper()
	program, err := exec.LookPath("qemu-nbd")
	if err != nil {
		t.Fatalf("qemu-nbd is missing: scripts/deps.sh installs it: %v", err)
	}
	dir, err := os.MkdirTemp("", "nbd") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	image, socket = filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "s")
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", image, "64M")
	run(t, "qemu-img", "bitmap", "--add", image, "notes")
	run(t, "qemu-io", "-c", "write -P 7 1M 2M", "-c", "write -P 9 40M 64k", image)
	command := exec.CommandContext(t.Context(), program,
		append([]string{"-f", "qcow2", "-k", socket, "-x", "disk", "-t", "-e", "4", "-A", "-B", "notes"},
			append(options, image)...)...)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for range 500 {
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return socket, image
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("qemu-nbd does not listen")
	return "", ""
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}

func open(t *testing.T, socket, export, metaContext string) (*Conn, error) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return Open(t.Context(), conn, export, metaContext)
}

func dial(t *testing.T, socket, metaContext string) *Conn {
	t.Helper()
	c, err := open(t, socket, "disk", metaContext)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestReadsWritesAndExtentsOfQEMUsServer(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t)
	notes := dial(t, socket, BitmapContext("notes"))
	if notes.Size() != 64<<20 {
		t.Fatalf("size %d", notes.Size())
	}
	var dirty []Extent
	for at := int64(0); at < notes.Size(); {
		some, err := notes.Extents(t.Context(), at, notes.Size()-at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some {
			if e.Flags&Dirty != 0 {
				dirty = append(dirty, e)
			}
			at = e.Offset + e.Length
		}
	}
	if want := []Extent{{1 << 20, 2 << 20, 1}, {40 << 20, 64 << 10, 1}}; !slices.Equal(dirty, want) {
		t.Fatalf("dirty %v, want %v", dirty, want)
	}

	c := dial(t, socket, AllocationContext)
	first, err := c.Extents(t.Context(), 0, 64<<20)
	if err != nil || len(first) == 0 || first[0] != (Extent{0, 1 << 20, Hole | Zero}) {
		t.Fatalf("extents %v, %v", first, err)
	}
	got := make([]byte, 40<<20) // more than one request
	if err := c.ReadAt(t.Context(), got, 512<<10); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 40<<20)
	copy(want[512<<10:], bytes.Repeat([]byte{7}, 2<<20))
	copy(want[39<<20+512<<10:], bytes.Repeat([]byte{9}, 64<<10))
	if !bytes.Equal(got, want) {
		t.Fatal("what was read is not what was written")
	}

	some := make([]byte, 3<<20)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(some)
	if err := c.WriteAt(t.Context(), some, 10<<20+512); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(some))
	if err := dial(t, socket, "").ReadAt(t.Context(), back, 10<<20+512); err != nil || !bytes.Equal(back, some) {
		t.Fatalf("another connection reads something else: %v", err)
	}
}

func TestARefusedRequestLeavesTheConnectionOpen(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t, "--read-only")
	c := dial(t, socket, "")
	refused := (*Error)(nil)
	if err := c.WriteAt(t.Context(), make([]byte, 512), 0); !errors.As(err, &refused) {
		t.Fatalf("a write to a read-only export: %v", err)
	}
	if err := c.ReadAt(t.Context(), make([]byte, 512), 64<<20-256); err == nil {
		t.Fatal("a read beyond the end succeeded")
	}
	if err := c.ReadAt(t.Context(), make([]byte, 512), 0); err != nil {
		t.Fatalf("the next read: %v", err)
	}
}

func TestAnInterruptedRequestBreaksTheConnection(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	c := connOf(ours, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.ReadAt(ctx, make([]byte, 512), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := c.ReadAt(t.Context(), make([]byte, 512), 0); err == nil {
		t.Fatal("a broken connection serves another request")
	}
}

func TestAnExportThatIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t)
	if _, err := open(t, socket, "other", ""); err == nil {
		t.Fatal("it connected")
	}
	if _, err := open(t, socket, "disk", BitmapContext("none")); err == nil {
		t.Fatal("it connected without the bitmap")
	}
}
