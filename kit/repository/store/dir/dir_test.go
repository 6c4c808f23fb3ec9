package dir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/kit/repository/store/dir"
	"github.com/mainstay-infra/mainstay/kit/require"
)

func open(t *testing.T, path string) *dir.Dir {
	t.Helper()
	d, err := dir.Open(path, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestAFolderKeepsThePromisesOfAStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	d := open(t, path)
	ctx := t.Context()
	if err := store.Probe(ctx, d, "probe/x"); err != nil {
		t.Fatal(err)
	}
	content := []byte("content of an object")
	if err := d.Put(ctx, "packs/a/b", content); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(ctx, "packs/a/b", []byte("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second Put: %v", err)
	}
	if got, err := d.Get(ctx, "packs/a/b", 100); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := d.Get(ctx, "packs/a/b", 3); !fault.Is(err, fault.TooLarge) {
		t.Errorf("%v", err)
	}
	part := make([]byte, 7)
	if err := d.GetRange(ctx, "packs/a/b", 13, part); err != nil || string(part) != " object"[:7] {
		t.Errorf("%q, %v", part, err)
	}
	for _, offset := range []int64{-1, 14, 20, 1 << 40} {
		if err := d.GetRange(ctx, "packs/a/b", offset, part); !fault.Is(err, fault.Invalid) {
			t.Errorf("from %d on: %v", offset, err)
		}
	}
	for _, prefix := range []string{"", "packs/", "packs/a/"} {
		var names []string
		for info, err := range d.List(ctx, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, fmt.Sprint(info.Name, " ", info.Size))
		}
		if len(names) != 1 || names[0] != "packs/a/b 20" {
			t.Errorf("%q: %v", prefix, names)
		}
	}
	for info, err := range d.List(ctx, "none/") {
		t.Errorf("%v, %v", info, err)
	}
	for _, path := range []string{"packs/a/b", "packs/a", "tmp"} {
		info, err := os.Stat(filepath.Join(d.Path(), path))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	for range 2 {
		if err := d.Delete(ctx, "packs/a/b"); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Stat(ctx, "packs/a/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestNoNameLeadsOutOfTheFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	d := open(t, path)
	secret := filepath.Join(filepath.Dir(path), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a/", ".hidden", "A", "a\x00", strings.Repeat("a", 201)} {
		_, err := d.Get(t.Context(), name, 100)
		if put := d.Put(t.Context(), name, nil); !fault.Is(err, fault.Invalid) || !fault.Is(put, fault.Invalid) {
			t.Errorf("%q: %v, %v", name, err, put)
		}
	}
	if err := os.Symlink(secret, filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "inside"), []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("inside", filepath.Join(path, "inner")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(path, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "inner", "pipe"} {
		if got, err := d.Get(t.Context(), name, 100); err == nil {
			t.Errorf("%s: %q was read", name, got)
		}
	}
}

func TestOfManyPutsOfOneNameOneWins(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "r"))
	for round := range 20 {
		var won atomic.Int64
		var putters sync.WaitGroup
		for i := range 8 {
			putters.Go(func() {
				switch err := d.Put(t.Context(), fmt.Sprintf("raced/%d/x", round), fmt.Append(nil, i)); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
			})
		}
		putters.Wait()
		if won.Load() != 1 {
			t.Errorf("%d won", won.Load())
		}
	}
}

func TestWhatKilledProcessesLeftIsRemovedAfterADay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	open(t, path)
	for _, name := range []string{"old", "new"} {
		if err := os.WriteFile(filepath.Join(path, "tmp", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(path, "tmp", "old"), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	left, err := os.ReadDir(filepath.Join(path, "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "new" {
		t.Errorf("%v, %v", left, err)
	}
}

func TestAFullFolderSaysWhatToDo(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := syscall.Mount("none", path, "tmpfs", 0, "size=256k"); err != nil {
		require.Missing(t, "a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) })
	d := open(t, filepath.Join(path, "r"))
	if err := d.Put(t.Context(), "small", []byte("small")); err != nil {
		t.Fatal(err)
	}
	err := d.Put(t.Context(), "large", make([]byte, 1<<20))
	if !fault.Is(err, fault.StorageFailed) || !strings.Contains(fault.From(err).Message, "storage is full") {
		t.Errorf("%v", err)
	}
	if _, err := d.Stat(t.Context(), "large"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	// Nothing of it takes room.
	if err := d.Put(t.Context(), "fits", make([]byte, 100<<10)); err != nil {
		t.Error(err)
	}
}
