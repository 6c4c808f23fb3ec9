package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

func open(t *testing.T, dir string) *store.DB {
	t.Helper()
	d, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closed(t *testing.T, d *store.DB) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// add stores an event of so many bytes.
func add(ctx context.Context, id string, size int) func(tx *db.Tx) error {
	return func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			"INSERT INTO outbox (event_id, topic, payload, headers, event_time, accepted_at, bytes) VALUES (?, 't', ?, '{}', 0, 0, 1)",
			id,
			strings.Repeat("x", size),
		)
		return err
	}
}

func events(t *testing.T, d *store.DB) (n int) {
	t.Helper()
	if err := d.Get(t.Context(), &n, "SELECT COUNT(*) FROM outbox"); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestADamagedDatabaseIsSetAsideAndANewOneTakesItsPlace(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"all noise":       func(b []byte) []byte { return bytes.Repeat([]byte("noise"), len(b)/5) },
		"no header":       func(b []byte) []byte { return append(make([]byte, 100), b[100:]...) },
		"a short file":    func([]byte) []byte { return []byte("no database") },
		"half of it":      func(b []byte) []byte { return b[:len(b)/2/4096*4096] },
		"pages of zeroes": func(b []byte) []byte { return append(b[:8192:8192], make([]byte, len(b)-8192)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "agent.db")
			d := open(t, dir)
			for _, id := range []string{"a", "b", "c"} {
				if err := d.Update(t.Context(), add(t.Context(), id, 50<<10)); err != nil {
					t.Fatal(err)
				}
			}
			closed(t, d)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			damaged := damage(whole)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			d = open(t, dir)
			if n := events(t, d); n != 0 {
				t.Errorf("%d events in the new database", n)
			}
			if err := d.Update(t.Context(), add(t.Context(), "d", 10)); err != nil {
				t.Error(err)
			}
			closed(t, d)
			aside := store.SetAside(dir)
			if len(aside) != 1 {
				t.Fatalf("set aside: %v", aside)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, damaged) {
				t.Errorf("what was set aside has changed: %d bytes of %d, %v", len(kept), len(damaged), err)
			}
			d = open(t, dir)
			if n := events(t, d); n != 1 || len(store.SetAside(dir)) != 1 {
				t.Errorf("at the next start: %d events, set aside: %v", n, store.SetAside(dir))
			}
			closed(t, d)
		})
	}
}

func TestDamageThatIsMetWhileTheAgentRunsIsSetAsideAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	if err := d.Notice(errors.New("something else")); err == nil || isClosed(d.Damaged()) {
		t.Fatal("another error was taken for damage")
	}
	if err := d.Notice(store.ErrDamaged); !errors.Is(err, store.ErrDamaged) || !isClosed(d.Damaged()) {
		t.Fatal("the damage was not noticed")
	}
	closed(t, d)
	closed(t, open(t, dir))
	closed(t, open(t, dir))
	if aside := store.SetAside(dir); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestOnlyDamageIsTakenForDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	if _, err := store.Open(t.Context(), dir); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a second process: %v", err)
	}
	closed(t, d)
	if err := os.Rename(filepath.Join(dir, "agent.db"), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "agent.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), dir); err == nil {
		t.Error("a folder was opened")
	}
	if aside := store.SetAside(dir); len(aside) != 0 {
		t.Errorf("set aside: %v", aside)
	}
}

// Not parallel: a program that is just being started holds the locks of databases
// that other tests have open.
func TestOnAFullDiskWhatWasSentIsDeletedAndNothingNewIsTaken(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount a file system")
	}
	mount, umount := require.Program(t, "mount", "mount"), require.Program(t, "umount", "mount")
	dir := t.TempDir()
	if out, err := exec.Command(mount, "-t", "tmpfs", "-o", "size=16m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(umount, dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	synctest.Test(t, func(t *testing.T) { // for its clock
		ctx := t.Context()
		d := open(t, dir)
		for _, id := range []string{"a", "b", "c", "d"} {
			if err := d.Update(ctx, add(ctx, id, 300<<10)); err != nil {
				t.Fatal(err)
			}
		}
		closed(t, d) // which empties the log
		d = open(t, dir)
		if err := d.Room(ctx); err != nil {
			t.Fatalf("with room: %v", err)
		}
		ballast := filepath.Join(dir, "ballast")
		fill(t, ballast)
		if err := d.Update(ctx, add(ctx, "e", 300<<10)); !fault.Is(err, fault.StorageFailed) {
			t.Fatalf("the disk is not full: %v", err)
		}
		if !d.Tight() {
			t.Error("nobody would hear of the full disk")
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			if err := d.Settle(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM outbox WHERE event_id = ?", id)
				return err
			}); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
		if n := events(t, d); n != 0 {
			t.Errorf("%d events are left", n)
		}
		fill(t, ballast+"-2")
		if err := d.Room(ctx); !fault.Is(err, fault.StorageFailed) || fault.From(err).Code != "storage_full" {
			t.Errorf("without room: %v", err)
		}
		if err := errors.Join(os.Remove(ballast), os.Remove(ballast+"-2")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := d.Room(ctx); err != nil || d.Tight() {
			t.Errorf("with room again: %v", err)
		}
		if err := d.Update(ctx, add(ctx, "f", 300<<10)); err != nil {
			t.Error(err)
		}
		closed(t, d)
	})
}

// fill takes all room of a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		err = nil
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
