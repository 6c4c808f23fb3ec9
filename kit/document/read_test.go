package document_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestOnlyRegularFilesAreReadAndNothingIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("written"), 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(at("written"), os.O_RDWR, 0) // so that a reader would wait for content
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	if err := os.Symlink("/proc/kmsg", at("kmsg")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("fifo"), at("link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		at("fifo"): "not a regular file", at("written"): "not a regular file", at("link"): "not a regular file",
		dir: "not a regular file", "/dev/zero": "not a regular file", "/dev/tty": "cannot read",
		at("kmsg"): "cannot read", // also where it may not be opened
	} {
		done := make(chan error, 1)
		go func() { _, err := document.Read(name, 1<<20); done <- err }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), want) || !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: reading blocks", name)
		}
	}
}

func TestALongFileIsReadWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "long")
	want := strings.Repeat("0123456789", 100000)
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := document.Read(path, int64(len(want))); err != nil || string(got) != want {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	if _, err := document.Read(path, int64(len(want))-1); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a file that is too large: %v", err)
	}
}
