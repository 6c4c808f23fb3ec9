package durable_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

func TestOfManyWritersOneWinsAndItsFileIsWholeAndPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			if err := durable.Create(path, fmt.Appendf(nil, "writer %02d", i), 0o600); err != nil {
				t.Error(err)
			}
			if b, err := os.ReadFile(path); err != nil || len(b) != len("writer 00") {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	writers.Wait()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("temporary files were left: %v, %v", left, err)
	}
}

func TestAFolderThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	if err := durable.Create(filepath.Join(t.TempDir(), "no", "key"), nil, 0o600); err == nil {
		t.Error("no error")
	}
}
