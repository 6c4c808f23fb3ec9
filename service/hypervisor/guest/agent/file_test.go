//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func TestALargeFileArrivesUnchangedInBothDirections(t *testing.T) {
	t.Parallel()
	size := int64(100 << 20)
	if raceDetector {
		size = 8 << 20 // it makes base64 twenty times slower
	}
	c := newClient(t)
	path := filepath.Join(t.TempDir(), "file")
	ctx := within(t, 2*time.Minute)
	sent, got := sha256.New(), sha256.New()
	content := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	if err := c.PutFile(ctx, path, 0o751, size, content); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o751 || info.Size() != size {
		t.Errorf("%v, %v", info, err)
	}
	mode, n, err := c.GetFile(ctx, path, got)
	if err != nil || mode != 0o751 || n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("mode %v, %d bytes, %v, same content: %t", mode, n, err, bytes.Equal(sent.Sum(nil), got.Sum(nil)))
	}
}

func TestSmallFilesArriveUnchanged(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, wire.MaxChunk - 1, wire.MaxChunk, wire.MaxChunk + 1, wire.Window, wire.Window + 1} {
		content := bytes.Repeat([]byte{0xff}, size)
		var got bytes.Buffer
		if err := c.PutFile(t.Context(), path, 0o640, int64(size), bytes.NewReader(content)); err != nil {
			t.Fatalf("put %d bytes: %v", size, err)
		}
		mode, n, err := c.GetFile(t.Context(), path, &got)
		if err != nil || mode != 0o640 || n != int64(size) || !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%d bytes: mode %v, %d bytes, %v", size, mode, n, err)
		}
	}
}

func TestADeviceIsNotReplacedByAFile(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	err := c.PutFile(t.Context(), pipe, 0o600, 1, strings.NewReader("x"))
	if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Error(err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("%v %v", info, err)
	}
}

func TestReadingAFileThatWaitsEndsWithTheCall(t *testing.T) {
	t.Parallel()
	const waiting = "/proc/kmsg"
	if f, err := os.Open(waiting); err != nil {
		t.Skip(err) // it takes privileges
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		close(begun)
		_, _, err := c.GetFile(ctx, waiting, io.Discard)
		ended <- err
	}()
	<-begun
	time.AfterFunc(300*time.Millisecond, cancel) // it has read what there was
	if err := <-ended; err == nil {
		t.Error("a file that waits for more was read to its end")
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if open := reading(t, waiting); open == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d descriptors of %s are open after the call", open, waiting)
		}
	}
}

// reading counts the descriptors of this process, in which the agent runs, that are of a file.
func reading(t *testing.T, path string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

func TestAFileOfTheKernelIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, n, err := newClient(t).GetFile(t.Context(), "/proc/version", &got); err != nil || n != int64(len(want)) ||
		got.String() != string(want) {
		t.Errorf("%d bytes, %v, %q", n, err, &got)
	}
}

func TestAFileIsPutWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(within(t, 30*time.Second))
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		content io.Reader
		want    error
	}{
		{"too short", strings.NewReader("short"), io.ErrUnexpectedEOF},
		{"broken", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), failing{broken}), broken},
		{"cancelled", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), reader(func([]byte) (int, error) {
			cancel()
			return 0, nil
		})), context.Canceled},
	} {
		if err := c.PutFile(ctx, path, 0o600, 10<<20, test.content); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		onlyOld(t, folder)
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// onlyOld waits until nothing is in the folder but the old file.
func onlyOld(t *testing.T, folder string) {
	t.Helper()
	eventually(t, "nothing but the old file is there", func() bool {
		entries, err := os.ReadDir(folder)
		b, readErr := os.ReadFile(filepath.Join(folder, "file"))
		return err == nil && readErr == nil && len(entries) == 1 && string(b) == "old"
	})
}

func TestPathsThatCannotBeAreRefusedAndTheSessionGoesOn(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 30*time.Second)
	for name, test := range map[string]struct {
		path     string
		put, get wire.Code
	}{
		"relative":      {"file", wire.Invalid, wire.Invalid},
		"empty":         {"", wire.Invalid, wire.Invalid},
		"a folder":      {folder, wire.Invalid, wire.Invalid},
		"a byte zero":   {"/tmp/\x00", wire.Invalid, wire.Invalid},
		"too long":      {"/" + strings.Repeat("x", wire.MaxPath), wire.Invalid, wire.Invalid},
		"no folder":     {filepath.Join(folder, "no", "file"), wire.NotFound, wire.NotFound},
		"a name so odd": {filepath.Join(folder, strings.Repeat("x", 300)), wire.Failed, wire.Failed},
	} {
		// More than the window, so that sending must stop by the answer.
		if err := c.PutFile(ctx, test.path, 0o600, 10<<20, endless{}); !guest.IsRefusal(err, test.put) {
			t.Errorf("put %s: %v, want %s", name, err, test.put)
		}
		if _, _, err := c.GetFile(ctx, test.path, io.Discard); !guest.IsRefusal(err, test.get) {
			t.Errorf("get %s: %v, want %s", name, err, test.get)
		}
	}
	if _, _, err := c.GetFile(ctx, pipe, io.Discard); !guest.IsRefusal(err, wire.Invalid) {
		t.Errorf("get a pipe: %v", err)
	}
	if _, _, err := c.GetFile(ctx, "/dev/zero", io.Discard); !guest.IsRefusal(err, wire.Invalid) {
		t.Errorf("get a device: %v", err)
	}
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, ".mainstay-*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestACallerSeesAFileBeforeItsContentAndMayRefuse(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	path := filepath.Join(t.TempDir(), "file")
	if err := c.PutFile(t.Context(), path, 0o604, 1<<20, endless{}); err != nil {
		t.Fatal(err)
	}
	tooLarge := errors.New("too large")
	_, err := c.GetFileTo(t.Context(), path, func(f guest.File) (io.Writer, error) {
		if f != (guest.File{Mode: fs.FileMode(0o604), Size: 1 << 20}) {
			t.Errorf("%+v", f)
		}
		return nil, tooLarge
	})
	if err != tooLarge {
		t.Error(err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
