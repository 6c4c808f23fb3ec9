package agent_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/agent"
)

// Not parallel: a program that is just being started holds the locks of databases
// that other tests have open.
func TestAnAgentWhoseDiskIsFullEnrollsOnceAndDelivers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	mount, umount := require.Program(t, "mount", "mount"), require.Program(t, "umount", "mount")
	dir := t.TempDir()
	if out, err := exec.Command(mount, "-t", "tmpfs", "-o", "size=24m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(umount, dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	p := newPlane(t)
	var open atomic.Bool
	away := func(w http.ResponseWriter, _ *http.Request) bool {
		if open.Load() {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	p.tamper.Store(&away)
	s := newSite(t, p.url, func(c *agent.Config) { c.Data = dir }).start()
	s.send("before")
	// All the room that is left, also that for the identity.
	if err := os.Remove(filepath.Join(dir, "identity.json.room")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	block, written := make([]byte, 4<<10), 0
	for err == nil {
		_, err = ballast.Write(block)
		written++
	}
	_ = ballast.Close()
	if written < 100 {
		t.Fatalf("the disk was full after %d blocks", written)
	}
	open.Store(true)
	s.online()
	eventually(t, "the event arrives", func() bool { return len(p.eventIDs("")) == 1 })
	if sites := get[[]edgeapi.Site](p, "/sites"); len(sites) != 1 {
		t.Errorf("%d sites were made", len(sites))
	}
	if state := s.status().Link.State; state != agentapi.LinkStateOnline {
		t.Errorf("the link is %s", state)
	}
	s.stop()
}
