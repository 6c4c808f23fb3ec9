//go:build linux

package process_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// A VM's process can make a file seem longer than any memory without writing it.
func TestOfAFileAsLongAsItLikesOnlyAPartIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	const size = 1 << 42
	if err := errors.Join(os.WriteFile(path, []byte("begin"), 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end"), size-3); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := process.Tail(path, 5); err != nil || string(got) != "\x00\x00end" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := process.Head(path, 6); err != nil || string(got) != "begin\x00" {
		t.Errorf("%q, %v", got, err)
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, part := range map[string]func(string, int) ([]byte, error){"head": process.Head, "tail": process.Tail} {
		if got, err := part(short, 100); err != nil || string(got) != "short" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

func TestNeitherALinkNorAPipeIsReadInAFilesPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link, pipe := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(
		os.WriteFile(target, []byte("x"), 0o600), os.Symlink(target, link), syscall.Mkfifo(pipe, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, pipe} {
		if got, err := process.Tail(path, 10); err == nil {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// A process can have the kernel show any part of its memory as its command line.
func TestOfACommandLineAsLongAsAProcessLikesOnlyAPartIsRead(t *testing.T) {
	t.Parallel()
	args := []string{"-c", "echo runs; read x", "marked"}
	for range 12 {
		args = append(args, strings.Repeat("x", 100<<10))
	}
	cmd := exec.CommandContext(t.Context(), "sh", args...) //nolint:gosec // the test's own
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
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 4)); err != nil { // it has its arguments now
		t.Fatal(err)
	}
	line, err := process.CommandLine(cmd.Process.Pid)
	if err != nil || len(line) != 1<<20 || !bytes.Contains(line, []byte("\x00marked\x00")) {
		t.Errorf("%d bytes, %v", len(line), err)
	}
}
