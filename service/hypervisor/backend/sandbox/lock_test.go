//go:build linux

package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFolderIsFreeOnceItsLockIsGivenUpWhoeverElseHasTheFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	lock, free, err := lockFolder(folder)
	if err != nil || !free {
		t.Fatalf("free %v, %v", free, err)
	}
	// As a process has it that was forked and does not run its program yet.
	other, err := unix.Dup(int(lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(other) }()
	if second, free, err := lockFolder(folder); free || err != nil {
		t.Fatalf("locked twice: %v, %v", second, err)
	}
	unlock(lock)
	again, free, err := lockFolder(folder)
	if err != nil || !free {
		t.Fatalf("free %v, %v", free, err)
	}
	unlock(again)
}
