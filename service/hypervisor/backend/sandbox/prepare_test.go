package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
)

func TestPrepareMakesWhatMountsLieOnAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"run/mainstay-guest", "tmp"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(
		filepath.Join(folder, "run/mainstay-guest/secret"), []byte("the image's own"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	for range 2 { // the second time it is all there
		if err := sandbox.Prepare(root); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"proc", "sys", "dev", ".mainstay/mainstay-guest"} {
		if _, err := root.Stat(name); err != nil {
			t.Error(err)
		}
	}
	if text, err := root.ReadFile("run/mainstay-guest/secret"); err != nil || string(text) != "the image's own" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := root.Stat("tmp"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestPrepareWritesNothingOutsideOfTheRootFileSystem(t *testing.T) {
	t.Parallel()
	outside, folder := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(folder, "run")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := sandbox.Prepare(root); err == nil {
		t.Error("it is not refused")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
}
