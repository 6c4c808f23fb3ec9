package catalog_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
)

// A folder that was looked at may hold another by the time it is copied, or by a mount.
func TestWhatIsRefusedBelowARootFileSystemIsNotTakenIn(t *testing.T) {
	t.Parallel()
	store, err := catalog.OpenContents(filepath.Join(t.TempDir(), "images"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	from := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(from, "a/own"), 0o700),
		os.WriteFile(filepath.Join(from, "a/own/secret"), []byte("x"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	own, err := os.Stat(filepath.Join(from, "a/own"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(from) //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	errOwn := errors.New("refused")
	if c, err := store.TakeRootFS(t.Context(), "one", root, func(info fs.FileInfo) error {
		if os.SameFile(info, own) {
			return errOwn
		}
		return nil
	}, asItIs); !errors.Is(err, errOwn) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := store.TakeRootFS(
		t.Context(), "two", root, func(fs.FileInfo) error { return nil }, asItIs,
	); err != nil ||
		c.Kind != catalog.RootFS {
		t.Errorf("%+v, %v", c, err)
	}
}

func asItIs(*os.Root) error { return nil }
