// Package store says what a backup repository needs of the place that keeps its objects: a folder
// (package dir) or a bucket (package s3).
//
// # Invariants
//
//   - An object is there whole or not at all, and never changes. Put never overwrites.
//   - If several Puts of one name race, one wins and the others fail with fs.ErrExist. The repository
//     decides by that who may commit, so a store that cannot promise it is refused.
//   - When Put has returned, the object survives power loss, and everybody's List shows it.
//   - Errors about missing objects match fs.ErrNotExist. A full store is a fault of kind
//     StorageFailed.
package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"regexp"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Info describes an object.
type Info struct {
	Name     string
	Size     int64     // in bytes
	Modified time.Time // by the store's clock
}

// Store keeps objects by name. It is safe for concurrent use.
type Store interface {
	// Put creates an object. It fails with fs.ErrExist if there is one of that name.
	Put(ctx context.Context, name string, content []byte) error
	// Get returns a whole object. One of more than limit bytes is a fault of kind TooLarge.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)
	// GetRange fills p with what an object has from offset on. A shorter object is a fault of kind
	// Invalid.
	GetRange(ctx context.Context, name string, offset int64, p []byte) error
	// List yields the objects whose names begin with prefix, which ends with a slash or is empty.
	// The order is not defined. Pages are its own concern.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes an object. It is no error if there is none.
	Delete(ctx context.Context, name string) error
	// Stat describes an object.
	Stat(ctx context.Context, name string) (Info, error)
}

// MaxName is the longest name of an object, in bytes.
const MaxName = 200

var names = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)*$`)

// CheckName refuses what is not a valid name of an object, with a fault that names the field
// "name".
func CheckName(name string) error {
	if len(name) > MaxName || !names.MatchString(name) {
		return fault.InvalidField("name", "%q is not a valid name of an object", name)
	}
	return nil
}

// CheckPrefix refuses what is not a valid prefix of names, with a fault that names the field
// "prefix".
func CheckPrefix(prefix string) error {
	folder, ends := strings.CutSuffix(prefix, "/")
	if prefix != "" && (!ends || CheckName(folder) != nil) {
		return fault.InvalidField("prefix", "%q is not a valid prefix: it ends with a slash, or is empty", prefix)
	}
	return nil
}

// Probe checks that a store keeps what it was given and never overwrites. name is that of an object
// that does not exist; it is removed again.
func Probe(ctx context.Context, s Store, name string) (err error) {
	first, second := []byte("the first writer wins"), []byte("the second writer must fail")
	if err := s.Put(ctx, name, first); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Delete(context.WithoutCancel(ctx), name)) }()
	if err := s.Put(ctx, name, second); err == nil {
		return fault.New(fault.Invalid,
			"the store overwrites objects: it must support conditional writes (If-None-Match: *)")
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	kept, err := s.Get(ctx, name, int64(len(second)))
	if err != nil {
		return err
	}
	if !bytes.Equal(kept, first) {
		return fault.New(fault.Invalid, "the store did not return what it was given")
	}
	return nil
}
