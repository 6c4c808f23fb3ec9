package hypervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
)

// Image is a name in the catalog.
type Image struct {
	Name           string       `db:"name"`
	Kind           catalog.Kind `db:"kind"`
	Source         string       `db:"source"`
	SHA256         string       `db:"sha256"`
	KernelArgs     string       `db:"kernel_args"`
	Size           int64        `db:"size"`
	VirtualSize    int64        `db:"virtual_size"`
	SignatureValid *bool        `db:"signature_valid"` // nil: it has no signature
	SignedAt       db.Time      `db:"signed_at"`
	ReadOnly       bool         `db:"read_only"`
	Locked         bool         `db:"locked"`
	AddedAt        db.Time      `db:"added_at"`
}

// image reads an image by its name.
func (s *Service) image(ctx context.Context, q db.Querier, name string) (Image, error) {
	var i Image
	err := q.Get(ctx, &i, "SELECT * FROM images WHERE name = ?", name)
	return i, db.NotFound(err, "there is no image %s", name)
}

// Images lists the catalog by name.
func (s *Service) Images(ctx context.Context, after string, limit int) ([]Image, error) {
	var images []Image
	err := s.db.Select(ctx, &images, "SELECT * FROM images WHERE name > ? ORDER BY name LIMIT ?", after, limit)
	return images, err
}

// Image reads one.
func (s *Service) Image(ctx context.Context, name string) (Image, error) {
	return s.image(ctx, s.db, name)
}

// usable says whether VMs may be made of an image.
func (s *Service) usable(i *Image) error {
	switch {
	case i.Locked:
		return fault.New(fault.Conflict, "the image %s is locked", i.Name).WithCode("image_locked")
	case s.doc.Images.RequireSigned && (i.SignatureValid == nil || !*i.SignatureValid):
		return admission.RefuseField("images.require_signed", "image", "%s has no good signature, which images.require_signed demands", i.Name)
	}
	return nil
}

// errReadOnly is the answer to whoever would change an image that is protected.
func errReadOnly(name string) error {
	return fault.New(fault.Conflict, "the image %s is read-only", name).WithCode("image_read_only")
}

// changeImage changes an image's row, with an audit entry.
func (s *Service) changeImage(ctx context.Context, name, action string, change func(ctx context.Context, tx *db.Tx, i *Image) error) (Image, error) {
	var i Image
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if i, err = s.image(ctx, tx, name); err != nil {
			return err
		}
		if err := change(ctx, tx, &i); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: action, Target: name})
	})
	return i, err
}

// SetReadOnly protects an image against change and removal, or lifts that.
func (s *Service) SetReadOnly(ctx context.Context, name string, on bool) (Image, error) {
	return s.changeImage(ctx, name, "image.read_only", func(ctx context.Context, tx *db.Tx, i *Image) error {
		i.ReadOnly = on
		_, err := tx.Exec(ctx, "UPDATE images SET read_only = ? WHERE name = ?", on, name)
		return err
	})
}

// SetLocked lets no VM be made of an image, or lifts that.
func (s *Service) SetLocked(ctx context.Context, name string, on bool) (Image, error) {
	return s.changeImage(ctx, name, map[bool]string{true: "image.lock", false: "image.unlock"}[on], func(ctx context.Context, tx *db.Tx, i *Image) error {
		i.Locked = on
		_, err := tx.Exec(ctx, "UPDATE images SET locked = ? WHERE name = ?", on, name)
		return err
	})
}

// RenameImage changes an image's name.
func (s *Service) RenameImage(ctx context.Context, name, to string) (Image, error) {
	return s.changeImage(ctx, name, "image.rename", func(ctx context.Context, tx *db.Tx, i *Image) error {
		if i.ReadOnly {
			return errReadOnly(name)
		}
		if to == name {
			return nil
		}
		i.Name = to
		_, err := tx.Exec(ctx, "UPDATE images SET name = ? WHERE name = ?", to, name)
		return nameTaken(err, to)
	})
}

func nameTaken(err error, name string) error {
	if db.IsUnique(err) {
		return fault.New(fault.Conflict, "there is an image named %s already", name).WithCode("name_taken")
	}
	return err
}

// CloneImage gives what an image stands for a second name.
func (s *Service) CloneImage(ctx context.Context, name, to string) (Image, error) {
	return s.changeImage(ctx, name, "image.clone", func(ctx context.Context, tx *db.Tx, i *Image) error {
		i.Name, i.ReadOnly, i.Locked, i.AddedAt = to, false, false, db.At(s.now())
		return nameTaken(tx.Insert(ctx, "images", *i), to)
	})
}

// RemoveImage removes a name. What it stood for is removed by CleanImages, once no VM
// stands on it.
func (s *Service) RemoveImage(ctx context.Context, name string) error {
	_, err := s.changeImage(ctx, name, "image.remove", func(ctx context.Context, tx *db.Tx, i *Image) error {
		if i.ReadOnly {
			return errReadOnly(name)
		}
		_, err := tx.Exec(ctx, "DELETE FROM images WHERE name = ?", name)
		return err
	})
	return err
}

// hold keeps contents from being cleaned until what it returns is called.
func (s *Service) hold() func() {
	s.cleaning.RLock()
	return s.cleaning.RUnlock
}

// CleanImages removes from disk what no image and no VM needs, and says how many contents
// and bytes that were.
func (s *Service) CleanImages(ctx context.Context) (files int, bytes int64, err error) {
	// Waiting in line would hold up all who make VMs behind an image that is being taken in.
	for patience := 50; !s.cleaning.TryLock(); patience-- {
		if patience == 0 {
			return 0, 0, fault.New(fault.Conflict, "images are being taken in, or VMs made; try again when that is over").WithCode("images_in_use")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	defer s.cleaning.Unlock()
	var needed []string
	if err := s.db.Select(ctx, &needed, "SELECT sha256 FROM images UNION SELECT base FROM vms UNION SELECT content FROM bases UNION SELECT base FROM backups"); err != nil {
		return 0, 0, err
	}
	keep := map[string]bool{}
	for _, sum := range needed {
		keep[sum] = true
	}
	if files, bytes, err = s.contents.Clean(keep); err != nil {
		return files, bytes, err
	}
	return files, bytes, s.db.Update(ctx, func(tx *db.Tx) error {
		return s.note(ctx, tx, audit.Entry{Action: "image.clean", Message: fmt.Sprintf("%d contents, %d bytes", files, bytes)})
	})
}
