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
	// maxChecked is the maximum size of a file that is checked at every start. Checking a larger
	// one would delay local programs; its damage is detected when it causes an error.
	maxChecked   = 64 << 20
	damagedInfix = ".damaged-"
	damagedMark  = ".is-damaged" // tells the next start to set the database aside
	missingInfix = ".missing-"
	timeLayout   = "20060102T150405Z"
	timePattern  = "????????T??????Z"
)

// ErrDamaged means that the database has turned out to be damaged. The next Open sets it aside.
var ErrDamaged = errors.New("the agent's database is damaged")

// errMissing means that the database that must exist is missing or empty.
var errMissing = errors.New("the agent's database is missing")

// IsDamage reports whether an error means that the database file is damaged.
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

// resultCode returns SQLite's primary result code from an error's chain, or 0.
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

// asStorageFault converts the error of a failed start to a storage fault if the disk caused it.
func asStorageFault(err error) error {
	if code := resultCode(err); code == sqliteFull || code == sqliteIOErr {
		return fault.Wrap(
			fault.StorageFailed, err, "database: the disk is full or broken; make room in the data folder",
		)
	}
	return err
}

// check verifies the integrity of a database, if it is small.
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

// Notice returns err. If it means that the database is damaged, Notice records that.
func (d *DB) Notice(err error) error {
	if err != nil && IsDamage(err) {
		d.damageOnce.Do(func() {
			// The mark is only a hint: the next start may detect the damage by itself.
			_ = os.WriteFile(d.path+damagedMark, nil, 0o600)
			close(d.damaged)
		})
	}
	return err
}

// Damaged returns a channel that is closed when the database turns out to be damaged.
func (d *DB) Damaged() <-chan struct{} { return d.damaged }

// setAside renames the database's files, including its write-ahead log. Data may be recovered from
// them by hand.
func setAside(path string) error {
	to := path + damagedInfix + time.Now().UTC().Format(timeLayout)
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fault.Wrap(fault.StorageFailed, err, "data: the damaged database %s cannot be renamed", path)
		}
	}
	return durable.Remove(path + damagedMark)
}

// SetAside returns the paths of the damaged databases that were set aside in a data folder and
// still exist.
func SetAside(dir string) []string {
	return marked(dir, damagedInfix)
}

// checkNotEmpty returns errMissing if a database has no tables. SQLite has created it then.
func checkNotEmpty(ctx context.Context, d *db.DB) error {
	var tables int
	if err := d.Get(ctx, &tables, "SELECT COUNT(*) FROM sqlite_master"); err != nil {
		return err
	}
	if tables == 0 {
		return errMissing
	}
	return nil
}

// markMissing creates an empty file that records when the database was found missing.
func markMissing(path string) error {
	mark := path + missingInfix + time.Now().UTC().Format(timeLayout)
	if err := durable.Replace(mark, nil, 0o600); err != nil {
		return fault.Wrap(fault.StorageFailed, err, "data: cannot write %s", mark)
	}
	return nil
}

// Missing returns the paths of the files that record when the database was missing or empty. They
// are there until the operator removes them.
func Missing(dir string) []string { return marked(dir, missingInfix) }

func marked(dir, infix string) []string {
	all, err := filepath.Glob(filepath.Join(dir, fileName+infix+timePattern))
	if err != nil {
		return nil // the pattern is valid
	}
	return all
}
