package record

import (
	"context"
	"strconv"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
)

// Image is a name in the catalog.
type Image struct {
	Name           string  `db:"name"`
	Kind           string  `db:"kind"` // disk, kernel or rootfs
	Source         string  `db:"source"`
	SHA256         string  `db:"sha256"`
	KernelArgs     string  `db:"kernel_args"`
	Size           int64   `db:"size"`
	VirtualSize    int64   `db:"virtual_size"`
	SignatureValid *bool   `db:"signature_valid"` // nil: no signature
	SignedAt       db.Time `db:"signed_at"`
	ReadOnly       bool    `db:"read_only"`
	Locked         bool    `db:"locked"`
	AddedAt        db.Time `db:"added_at"`
	Search         string  `db:"search"` // what a search looks at (package search)
}

func (i *Image) searchText() string { return search.Text(nil, i.Name, i.Kind, i.SHA256, i.Source) }

// described returns the name, and the column search.
func (i *Image) described() (name, text string) { return i.Name, i.searchText() }

// Image returns an image by name. The catalog has no tenant scope.
func (s *Store) Image(ctx context.Context, name string) (Image, error) {
	return imageIn(ctx, s.db, name)
}

func imageIn(ctx context.Context, q db.Querier, name string) (Image, error) {
	var i Image
	err := q.Get(ctx, &i, "SELECT * FROM images WHERE name = ?", name)
	return i, db.NotFound(err, "there is no image %s", name)
}

// ImageFilter selects images. Zero fields match all.
type ImageFilter struct {
	Text  string // must be contained in the name, kind, source or SHA-256, ignoring case
	Sort  string // as the contract has it; empty: by name
	After string // the key of the last image of the previous page
	Limit int
}

var imageSorts = list.Sorts{List: "images", Unique: "name", Usual: "name", By: map[string]list.Column{
	"name": {Name: "name"}, "added_at": {Name: "added_at", Number: true},
}}

// ImageKey returns the key of an image in a list.
func ImageKey(order list.Order, i Image) string {
	value := ""
	if order.Word() == "added_at" {
		value = strconv.FormatInt(i.AddedAt.UnixMicro(), 10)
	}
	return order.Key(value, i.Name)
}

// Images lists the catalog, which every caller may see.
func (s *Store) Images(ctx context.Context, f ImageFilter) (images []Image, order list.Order, err error) {
	order, err = search.Page{
		Table: "images", ID: "name", Sorts: imageSorts, Scope: db.All(), Text: f.Text, Sort: f.Sort, After: f.After,
		Limit: f.Limit,
	}.Read(ctx, s.db, &images)
	return images, order, err
}

// ErrImageReadOnly returns the error for changes to a read-only image.
func ErrImageReadOnly(name string) error {
	return fault.New(fault.Conflict, "the image %s is read-only", name).WithCode("image_read_only")
}

// changeImage changes an image's row and writes an audit entry.
func (s *Store) changeImage(
	ctx context.Context, name, action string, change func(ctx context.Context, tx *db.Tx, i *Image) error,
) (Image, error) {
	var i Image
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if i, err = imageIn(ctx, tx, name); err != nil {
			return err
		}
		if err := change(ctx, tx, &i); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: action, Target: name})
	})
	return i, err
}

// SetReadOnly protects an image from changes and removal, or unprotects it.
func (s *Store) SetReadOnly(ctx context.Context, name string, on bool) (Image, error) {
	return s.changeImage(ctx, name, "image.read_only", func(ctx context.Context, tx *db.Tx, i *Image) error {
		i.ReadOnly = on
		_, err := tx.Exec(ctx, "UPDATE images SET read_only = ? WHERE name = ?", on, name)
		return err
	})
}

// SetLocked prevents or allows creating VMs from an image.
func (s *Store) SetLocked(ctx context.Context, name string, on bool) (Image, error) {
	action := map[bool]string{true: "image.lock", false: "image.unlock"}[on]
	return s.changeImage(ctx, name, action, func(ctx context.Context, tx *db.Tx, i *Image) error {
		i.Locked = on
		_, err := tx.Exec(ctx, "UPDATE images SET locked = ? WHERE name = ?", on, name)
		return err
	})
}

// RenameImage renames an image. It fails if the image is read-only or the name is taken.
func (s *Store) RenameImage(ctx context.Context, name, to string) (Image, error) {
	return s.changeImage(ctx, name, "image.rename", func(ctx context.Context, tx *db.Tx, i *Image) error {
		if i.ReadOnly {
			return ErrImageReadOnly(name)
		}
		if to == name {
			return nil
		}
		i.Name = to
		_, err := tx.Exec(ctx, "UPDATE images SET name = ?, search = ? WHERE name = ?", to, i.searchText(), name)
		return nameTaken(err, to)
	})
}

func nameTaken(err error, name string) error {
	if db.IsUnique(err) {
		return fault.New(fault.Conflict, "there is an image named %s already", name).WithCode("name_taken")
	}
	return err
}

// CloneImage adds a second name for an image's content.
func (s *Store) CloneImage(ctx context.Context, name, to string) (Image, error) {
	return s.changeImage(ctx, name, "image.clone", func(ctx context.Context, tx *db.Tx, i *Image) error {
		i.Name, i.ReadOnly, i.Locked, i.AddedAt = to, false, false, db.At(s.now())
		i.Search = i.searchText()
		return nameTaken(tx.Insert(ctx, "images", *i), to)
	})
}

// RemoveImage removes a name. Its content stays until a clean-up finds that nothing uses it.
func (s *Store) RemoveImage(ctx context.Context, name string) error {
	_, err := s.changeImage(ctx, name, "image.remove", func(ctx context.Context, tx *db.Tx, i *Image) error {
		if i.ReadOnly {
			return ErrImageReadOnly(name)
		}
		if err := mayRemoveImage(ctx, tx, i); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM images WHERE name = ?", name)
		return err
	})
	return err
}

// AddImage stores a name. With replace, it replaces an image of that name unless that is read-only.
func (s *Store) AddImage(ctx context.Context, i *Image, replace bool) error {
	i.AddedAt, i.Search = db.At(s.now()), i.searchText()
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if replace {
			if _, err := tx.Exec(ctx, "DELETE FROM images WHERE name = ? AND read_only = FALSE", i.Name); err != nil {
				return err
			}
		}
		return nameTaken(tx.Insert(ctx, "images", *i), i.Name)
	})
}

// ReplaceContent gives an image, as it was read, another content, which has no signature.
func (s *Store) ReplaceContent(ctx context.Context, was *Image, sum string, size, virtualSize int64) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		i, err := imageIn(ctx, tx, was.Name)
		if err != nil {
			return err
		}
		if i.SHA256 != was.SHA256 || i.ReadOnly {
			return fault.New(fault.Conflict, "the image %s was changed meanwhile", was.Name)
		}
		i.SHA256 = sum
		_, err = tx.Exec(ctx, `UPDATE images SET sha256 = ?, size = ?, virtual_size = ?, signature_valid = NULL,
			signed_at = NULL, search = ? WHERE name = ?`, sum, size, virtualSize, i.searchText(), i.Name)
		return err
	})
}

// NeededContents returns the SHA-256 of all contents that an image, VM, CD drive, shared disk, backup or
// template uses.
func (s *Store) NeededContents(ctx context.Context) (needed map[string]bool, err error) {
	var sums []string
	err = s.db.Select(ctx, &sums, `SELECT sha256 FROM images UNION SELECT base FROM vms
		UNION SELECT content FROM bases UNION SELECT base FROM backups
		UNION SELECT content FROM templates`)
	needed = map[string]bool{}
	for _, sum := range sums {
		needed[sum] = true
	}
	if err != nil {
		return nil, err
	}
	var drives []VM
	err = s.db.Select(ctx, &drives, "SELECT * FROM vms WHERE cd <> 'null' OR running LIKE '%\"cd\"%'")
	for i := range drives {
		for _, cd := range []*CD{drives[i].CD.V, drives[i].AsRunning().CD.V} {
			if cd != nil {
				needed[cd.SHA256] = true
			}
		}
	}
	return needed, err
}
