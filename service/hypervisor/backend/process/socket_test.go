//go:build linux

package process_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

func TestDialConnectsOnlyToASocketOfTheProcess(t *testing.T) {
	t.Parallel()
	// The path of the socket is longer than a Unix socket's address may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := process.InFolder(dir, "a.sock", func(path string) (err error) {
		listener, err = net.Listen("unix", path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := process.Dial(t.Context(), dir, "a.sock", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := process.Dial(t.Context(), dir, "a.sock", os.Getpid()+1); err == nil || conn != nil {
		t.Errorf("connected to another process's socket: %v", err)
	}
	if _, err := process.Dial(t.Context(), dir, "b.sock", os.Getpid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing socket: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Dial(t.Context(), link, "a.sock", os.Getpid()); err == nil {
		t.Error("a symbolic link was followed")
	}
}
