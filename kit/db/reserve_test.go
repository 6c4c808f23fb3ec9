//go:build linux

package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
)

func TestTheReserveOfAFullDiskIsGivenStepByStep(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=32m"); err != nil {
		require.Missing(t, "file systems cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	path := filepath.Join(disk, "test.db")
	d := dbtest.Open(t, db.Config{Path: path, Reserve: 4 * mib}, tables)
	kept := func() int64 {
		t.Helper()
		info, err := os.Stat(path + "-reserve")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if kept() != 4*mib || d.Low() {
		t.Fatalf("at first: %d bytes are kept, low: %t", kept(), d.Low())
	}
	big, err := os.Create(filepath.Join(disk, "big"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = big.Close() })
	fill := func() {
		t.Helper()
		for size := mib; size > 0; {
			if _, err := big.Write(make([]byte, size)); err == nil {
				continue
			} else if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
	id := 0
	add := func(bytes int) error {
		id++
		return d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO demo (id, n, flag, meta) VALUES (?, 1, TRUE, ?)", id,
				`"`+string(make([]byte, bytes))+`"`)
			return err
		})
	}
	// Each time that somebody fills the disk again, the database takes another step.
	for step := range 8 {
		fill()
		for before := kept(); kept() == before; {
			if err := add(16 << 10); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if want := int64(7-step) * mib / 2; kept() != want || !d.Low() {
			t.Errorf("step %d: %d bytes are kept, want %d, low: %t", step, kept(), want, d.Low())
		}
	}
	fill()
	for err = error(nil); err == nil; {
		err = add(16 << 10)
	}
	if !fault.Is(err, fault.StorageFailed) {
		t.Errorf("with an empty reserve: %v", err)
	}
	var n int
	if err := d.Get(t.Context(), &n, "SELECT COUNT(*) FROM demo"); err != nil || n != id-1 {
		t.Errorf("%d rows of %d, %v", n, id-1, err)
	}
	if err := big.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := add(1); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}
