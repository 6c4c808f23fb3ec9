//go:build linux

package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// What takes up the disk may be anything, such as what clients write to volumes.
func TestOnAFullDiskVolumesCanBeDeleted(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=96m"); err != nil {
		require.Missing(t, "file systems cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	g := start(t, func(c *storage.Config) { c.Data = filepath.Join(disk, "data") })
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	other := g.done(g.call("POST", "/volumes", g.admin, object{"name": "other", "size_bytes": mib}), g.admin)
	snapshot := g.done(g.call("POST", "/volumes/"+id+"/snapshots", g.admin, object{"name": "one"}), g.admin)

	big := filepath.Join(disk, "big")
	fill := func() {
		t.Helper()
		f, err := os.OpenFile(big, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for size := mib; size > 0; {
			if _, err = f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	g.done(g.call("DELETE", "/snapshots/"+snapshot, g.admin, nil), g.admin)
	g.call("POST", "/volumes", g.admin, object{"name": "more", "size_bytes": mib}).Refused(507, "STORAGE_FULL", "")
	g.done(g.call("DELETE", "/volumes/"+id, g.admin, nil), g.admin)
	g.stop()
	g.run()
	g.call("POST", "/backends/"+g.local().Id+"/discover", g.admin, nil).Refused(507, "STORAGE_FULL", "")
	g.done(g.call("DELETE", "/volumes/"+other, g.admin, nil), g.admin)
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); g.call("POST", "/volumes", g.admin, object{"name": "more", "size_bytes": mib}).Status != 202; {
		if time.Now().After(deadline) {
			t.Fatal("there is room again, and nothing can be made")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
