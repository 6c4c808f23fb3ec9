package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// A file up to this size is read through at every start; a larger one would keep
	// programs waiting, and its damage is found when it is met.
	maxChecked    = 64 << 20
	damagedInfix  = ".damaged-"
	damagedMark   = ".is-damaged" // says that the next start is to set the database aside
	damagedLayout = "20060102T150405Z"
)

// ErrDamaged says that the database has turned out to be damaged. The next Open sets
// it aside.
var ErrDamaged = errors.New("the agent's database is damaged")

// IsDamage reports whether an error says that the database's file is damaged.
func IsDamage(err error) bool {
	if errors.Is(err, ErrDamaged) {
		return true
	}
	code := resultCode(err)
	return code == sqliteCorrupt || code == sqliteNotADB
}

// SQLite's result codes (https://sqlite.org/rescode.html).
const (
	sqliteIOErr   = 10
	sqliteCorrupt = 11
	sqliteFull    = 13
	sqliteNotADB  = 26
)

// resultCode is SQLite's primary result code in an error's chain; 0: none.
func resultCode(err error) int {
	var lite interface {
		error
		Code() int
	}
	if errors.As(err, &lite) {
		return lite.Code() & 0xff
	}
	return 0
}

// asStorageFault gives a failed start that the disk is to blame for its kind.
func asStorageFault(err error) error {
	if code := resultCode(err); code == sqliteFull || code == sqliteIOErr {
		return fault.Wrap(
			fault.StorageFailed, err, "database: the disk is full or broken; make room in the data folder",
		)
	}
	return err
}

// check reads a database through, if it is small.
func check(ctx context.Context, d *db.DB, path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxChecked {
		return err
	}
	var findings []string
	if err := d.Select(ctx, &findings, "PRAGMA quick_check(1)"); err != nil {
		return err
	}
	if !slices.Equal(findings, []string{"ok"}) {
		return ErrDamaged
	}
	return nil
}

// Notice passes an error on, having noticed whether it says that the database is
// damaged.
func (d *DB) Notice(err error) error {
	if err != nil && IsDamage(err) {
		d.damageOnce.Do(func() {
			// The mark is only a help: the next start may find the damage by itself.
			_ = os.WriteFile(d.path+damagedMark, nil, 0o600)
			close(d.damaged)
		})
	}
	return err
}

// Damaged is closed when the database has turned out to be damaged.
func (d *DB) Damaged() <-chan struct{} { return d.damaged }

// setAside renames the database's files. Its log goes with it: together they may
// still hold what can be rescued by hand.
func setAside(path string) error {
	to := path + damagedInfix + time.Now().UTC().Format(damagedLayout)
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fault.Wrap(fault.StorageFailed, err, "data: the damaged database %s cannot be renamed", path)
		}
	}
	return durable.Remove(path + damagedMark)
}

// SetAside are the paths of databases that were damaged and set aside in a data
// folder, and not removed since.
func SetAside(dir string) []string {
	all, err := filepath.Glob(filepath.Join(dir, fileName+damagedInfix+"????????T??????Z"))
	if err != nil {
		return nil // the pattern is a good one
	}
	return all
}
