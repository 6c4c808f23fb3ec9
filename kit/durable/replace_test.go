package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

func TestAFileIsReplacedWholeWithItsModeAndNothingIsLeftBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, content := range []string{"one", "two, longer", ""} {
		if err := durable.Replace(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read %q, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("entries %v, %v", entries, err)
	}
	for range 2 { // the second time there is nothing to remove
		if err := durable.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func TestAFailedReplacementLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "taken") // a folder that is not empty cannot be renamed over
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(path, []byte("new"), 0o600); err == nil {
		t.Fatal("a folder was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("entries %v, %v", entries, err)
	}
}
