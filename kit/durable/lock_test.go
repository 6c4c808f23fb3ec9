package durable_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestALockKeepsOthersOutUntilItIsReleased(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	mine, other := opened(t, path), opened(t, path)
	if err := durable.Lock(mine); err != nil {
		t.Fatal(err)
	}
	if err := durable.Lock(other); !errors.Is(err, durable.ErrLocked) {
		t.Fatal(err)
	}
	if err := durable.Unlock(mine); err != nil {
		t.Fatal(err)
	}
	if err := durable.Lock(other); err != nil {
		t.Error(err)
	}
}

// As when a process was killed while it started another one, which still has the file open for a moment.
func TestALockThatAChildOfADeadProcessStillHasIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	dead, next := opened(t, path), opened(t, path)
	if err := durable.Lock(dead); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "0.3")
	child.ExtraFiles = []*os.File{dead}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := durable.Lock(next); err != nil {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
