package nbd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/vm/nbd"
)

// memory is a Source in memory.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) ReadAtContext(ctx context.Context, p []byte, offset int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return bytes.NewReader(m).ReadAt(p, offset)
}

func random(t *testing.T, size int) memory {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	out := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), seed))).Read(out)
	return out
}

func TestWhatIsWrittenToAnOverlayIsReadBackAndTheDiskBelowStaysAsItIs(t *testing.T) {
	t.Parallel()
	below := random(t, 10*4096+512) // the last page is not whole
	want := bytes.Clone(below)
	kept := bytes.Clone(below)
	o := nbd.NewOverlay(below, 1<<20)
	for range 3000 {
		offset := rand.IntN(len(want))
		p := make([]byte, rand.IntN(min(9000, len(want)-offset+1)))
		if rand.IntN(2) == 0 {
			for i := range p {
				p[i] = byte(rand.Uint32())
			}
			if err := o.WriteAt(t.Context(), p, int64(offset)); err != nil {
				t.Fatal(err)
			}
			copy(want[offset:], p)
			continue
		}
		if err := o.ReadAt(t.Context(), p, int64(offset)); err != nil || !bytes.Equal(p, want[offset:offset+len(p)]) {
			t.Fatalf("%d bytes at %d are not what was written: %v", len(p), offset, err)
		}
	}
	if !bytes.Equal(below, kept) {
		t.Error("the disk below has changed")
	}
}

func TestAnOverlayTakesNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	o := nbd.NewOverlay(make(memory, 1<<20), 3*4096)
	for i := range 3 {
		if err := o.WriteAt(t.Context(), []byte{1}, int64(i)*4096); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.WriteAt(t.Context(), []byte{1}, 3*4096); !errors.Is(err, nbd.ErrFull) {
		t.Errorf("a fourth page: %v", err)
	}
	if err := o.WriteAt(t.Context(), []byte{2}, 5); err != nil {
		t.Errorf("a page that is kept already: %v", err)
	}
}

// listen serves a disk on a socket until the test ends.
func listen(t *testing.T, disk nbd.Disk) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nbd") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer func() { _ = conn.Close() }()
				if err := nbd.Serve(context.Background(), conn, disk); err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("serve: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	return socket
}

func TestQEMUReadsAndWritesWhatIsServed(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"qemu-img", "qemu-io"} {
		require.Program(t, program, "qemu-utils")
	}
	below := random(t, 3<<20)
	socket := listen(t, nbd.NewOverlay(below, 1<<20))
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	read := func() []byte {
		t.Helper()
		run("qemu-img", "convert", "-f", "raw", "-O", "raw", "nbd:unix:"+socket, copied)
		raw, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if !bytes.Equal(read(), below) {
		t.Error("QEMU reads something else")
	}
	run("qemu-io", "-f", "raw", "-c", "write -P 7 1000000 5000", "-c", "flush", "nbd:unix:"+socket)
	want := bytes.Clone(below)
	copy(want[1000000:], bytes.Repeat([]byte{7}, 5000))
	if !bytes.Equal(read(), want) {
		t.Error("what QEMU has written is not read back")
	}
}

// talk sends what a client says, and returns what the server answers until it ends, and why it ended.
func talk(t testing.TB, disk nbd.Disk, said []byte) ([]byte, error) {
	t.Helper()
	var out bytes.Buffer
	err := nbd.Serve(t.Context(), struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(said), &out}, disk)
	return out.Bytes(), err
}

// words joins numbers of fixed sizes and texts.
func words(values ...any) []byte {
	var out bytes.Buffer
	for _, v := range values {
		if text, ok := v.(string); ok {
			out.WriteString(text)
			continue
		}
		_ = binary.Write(&out, binary.BigEndian, v)
	}
	return out.Bytes()
}

// chosen is a client that has chosen the export.
var chosen = words(uint32(3), "IHAVEOPT", uint32(7), uint32(6), uint32(0), uint16(0))

func request(kind uint16, offset uint64, length uint32) []byte {
	return words(uint32(0x25609513), uint16(0), kind, uint64(42), offset, length)
}

func TestRequestsOutsideOfTheDiskAreRefusedAndTheConnectionStays(t *testing.T) {
	t.Parallel()
	said := bytes.Clone(chosen)
	said = append(said, request(0, 4000, 97)...)                          // reads beyond the end
	said = append(said, request(0, 1<<63, 1)...)                          // far beyond
	said = append(said, append(request(1, 4096, 1), 'x')...)              // writes beyond the end
	said = append(said, request(9, 0, 0)...)                              // nothing that there is
	said = append(said, append(request(1, 0, 3), "abc"...)...)            // and one that is right
	said = append(said, append(request(3, 0, 0), request(0, 0, 3)...)...) // a flush, and what was written
	out, err := talk(t, nbd.NewOverlay(make(memory, 4096), 1<<20), append(said, request(2, 0, 0)...))
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, errno := range []uint32{22, 22, 28, 22, 0, 0, 0} {
		want = append(want, words(uint32(0x67446698), errno, uint64(42))...)
	}
	if want = append(want, "abc"...); !bytes.HasSuffix(out, want) {
		t.Errorf("the answers are %x, want %x", out[max(0, len(out)-len(want)):], want)
	}
}

func TestClientsThatDoNotFollowTheProtocolAreLetGo(t *testing.T) {
	t.Parallel()
	for what, said := range map[string][]byte{
		"unknown flags":       words(uint32(1 << 20)),
		"no flags":            words(uint32(0)),
		"another magic":       words(uint32(3), "IHAVEOPX", uint32(7), uint32(6), uint32(0), uint16(0)),
		"a long option":       words(uint32(3), "IHAVEOPT", uint32(7), uint32(1<<31)),
		"a short option":      words(uint32(3), "IHAVEOPT", uint32(7), uint32(2), uint16(0)),
		"a name that is cut":  words(uint32(3), "IHAVEOPT", uint32(7), uint32(6), uint32(9), uint16(0)),
		"options for ever":    words(uint32(3), string(bytes.Repeat(words("IHAVEOPT", uint32(3), uint32(0)), 100))),
		"a large read":        append(bytes.Clone(chosen), request(0, 0, 1<<31)...),
		"a large write":       append(bytes.Clone(chosen), request(1, 0, 1<<31)...),
		"another magic later": append(bytes.Clone(chosen), words(uint32(1), uint16(0), uint16(0), uint64(0), uint64(0), uint32(0))...),
	} {
		if _, err := talk(t, nbd.NewOverlay(make(memory, 4096), 1<<20), said); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAReadThatFailsIsToldToTheClient(t *testing.T) {
	t.Parallel()
	out, err := talk(t, nbd.NewOverlay(failing{}, 1<<20), append(append(bytes.Clone(chosen), request(0, 0, 512)...), request(2, 0, 0)...))
	if want := words(uint32(0x67446698), uint32(5), uint64(42)); err != nil || !bytes.HasSuffix(out, want) {
		t.Errorf("%x, %v", out, err)
	}
}

type failing struct{}

func (failing) Size() int64 { return 4096 }

func (failing) ReadAtContext(context.Context, []byte, int64) (int, error) {
	return 0, errors.New("the store does not answer")
}

func FuzzServe(f *testing.F) {
	f.Add(chosen)
	f.Add(append(bytes.Clone(chosen), request(0, 0, 512)...))
	f.Add(append(append(bytes.Clone(chosen), request(1, 0, 2)...), "ab"...))
	f.Add(words(uint32(3), "IHAVEOPT", uint32(1), uint32(0)))
	f.Fuzz(func(t *testing.T, said []byte) {
		_, _ = talk(t, nbd.NewOverlay(make(memory, 8192), 4096), said) // it ends, and takes little memory
	})
}
