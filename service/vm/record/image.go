package record

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Kinds of jobs that make images, and that resize them. They change no VM.
const (
	JobImageBuild    = "image.build"
	JobImageDownload = "image.download"
	JobImageImport   = "image.import"
	JobImageResize   = "image.resize"
)

// ImageState is an image's state.
type ImageState string

// The states of an image. Those in the middle are one state of work, by what makes the image.
const (
	ImagePending     ImageState = "pending"
	ImageBuilding    ImageState = "building"
	ImageDownloading ImageState = "downloading"
	ImageImporting   ImageState = "importing"
	ImageCompleted   ImageState = "completed"
	ImageFailed      ImageState = "failed"
	ImageCancelled   ImageState = "cancelled"
)

// Ended reports whether no job makes the image any more.
func (s ImageState) Ended() bool {
	return s == ImageCompleted || s == ImageFailed || s == ImageCancelled
}

// workStates are the states of work by the kind of job.
var workStates = map[string]ImageState{
	JobImageBuild: ImageBuilding, JobImageDownload: ImageDownloading, JobImageImport: ImageImporting,
}

// Kinds of images.
const (
	ImageDisk = "disk"
	ImageISO  = "iso"
)

// ImageSpec is what was asked for.
type ImageSpec struct {
	Distribution string   `json:"distribution,omitempty"`
	Version      string   `json:"version,omitempty"`
	Format       string   `json:"format"`
	Packages     []string `json:"packages,omitempty"`
	Autologin    bool     `json:"autologin,omitempty"`
	CloudInit    bool     `json:"cloud_init,omitempty"`
	Agent        bool     `json:"agent,omitempty"`
	Path         string   `json:"path,omitempty"` // of an import
}

// Image is what VMs are made of.
type Image struct {
	ID          string             `db:"id"`
	Name        string             `db:"name"`
	Tenant      string             `db:"tenant"`
	Shared      bool               `db:"shared"`
	Catalog     string             `db:"catalog_name"`
	Kind        string             `db:"kind"`
	Origin      string             `db:"origin"`
	Spec        db.JSON[ImageSpec] `db:"spec"`
	State       ImageState         `db:"state"`
	Uploading   bool               `db:"uploading"`
	Error       string             `db:"error"`
	Size        int64              `db:"size"`
	VirtualSize int64              `db:"virtual_size"`
	SHA256      string             `db:"sha256"`
	Job         string             `db:"job_id"`
	Search      string             `db:"search"`
	CreatedAt   db.Time            `db:"created_at"`
	StartedAt   db.Time            `db:"started_at"`
	CompletedAt db.Time            `db:"completed_at"`
}

// CatalogName returns the name at the daemon of a tenant's image. Names of images and of tenants have no
// colon, so two tenants never have the same one.
func CatalogName(tenant, name string) string {
	if tenant == "" {
		return name
	}
	return tenant + ":" + name
}

// imageScope returns the images that a caller sees: those of its tenant, and shared ones.
func imageScope(c caller.Caller) db.Scope {
	switch {
	case c.SeesAll():
		return db.All()
	case c.Role != "":
		return db.Where("(tenant = ? OR shared)", c.Tenant)
	}
	return db.Scope{}
}

// seenBy reports whether those who have a tenant see an image.
func (i *Image) seenBy(tenant string) bool { return i.Tenant == tenant || i.Shared }

// errImageTaken is the fault for a name that another image of the tenant has.
func errImageTaken(name string) error {
	return fault.New(fault.Conflict, "there is an image named %s already", name).WithCode("image_name_taken")
}

// maxUnfinished is how many images of one tenant may be unfinished at once.
const maxUnfinished = 20

// AddImage stores a new image as pending. begin begins its job, and returns the job's id.
func (s *Store) AddImage(ctx context.Context, i Image, begin func(tx *db.Tx) (job string, err error)) (Image, error) {
	i.State, i.CreatedAt, i.Catalog = ImagePending, db.At(s.now()), CatalogName(i.Tenant, i.Name)
	i.Search = search.Text(nil, i.Name, i.Spec.V.Distribution, i.Tenant)
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if err := s.admit(ctx, tx, i.Tenant, Use{}); err != nil {
			return err
		}
		var unfinished int
		if err := tx.Get(ctx, &unfinished, `SELECT COUNT(*) FROM images WHERE tenant = ? AND completed_at IS NULL`,
			i.Tenant); err != nil {
			return err
		}
		if unfinished >= maxUnfinished {
			return fault.New(fault.TooMany, "%d images are being made; wait for one of them, or cancel it", unfinished)
		}
		i := &i
		if i.Job, err = begin(tx); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "images", *i); db.IsUnique(err) {
			return errImageTaken(i.Name)
		} else if err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: i.Origin, Target: i.ID, Tenant: i.Tenant, Message: i.Name})
	})
	if err != nil {
		return i, err
	}
	return s.Image(ctx, i.ID)
}

// Image returns an image in the caller's scope.
func (s *Store) Image(ctx context.Context, id string) (i Image, err error) {
	condition, args := imageScope(caller.From(ctx)).And("id = ?", id).SQL()
	err = s.db.Get(ctx, &i, "SELECT * FROM images WHERE "+condition, args...)
	return i, db.NotFound(err, "there is no such image")
}

// ImageFilter selects images. Zero fields match all.
type ImageFilter struct {
	Tenant *string
	State  ImageState
	Kind   string
	Text   string
	list.Offset
}

// Images lists the images in the caller's scope that a filter selects, newest first, and counts them.
func (s *Store) Images(ctx context.Context, f ImageFilter) (page []Image, total int, err error) {
	scope := imageScope(caller.From(ctx))
	if f.Tenant != nil {
		scope = scope.And("tenant = ?", *f.Tenant)
	}
	if f.State != "" {
		scope = scope.And("state = ?", f.State)
	}
	if f.Kind != "" {
		scope = scope.And("kind = ?", f.Kind)
	}
	condition, args := scope.SQL()
	if f.Text != "" {
		contains, arg := search.Contains(f.Text)
		condition, args = condition+" AND "+contains, append(args, arg)
	}
	if err := s.db.Get(ctx, &total, "SELECT COUNT(*) FROM images WHERE "+condition, args...); err != nil {
		return nil, 0, err
	}
	return page, total, s.db.Select(ctx, &page, "SELECT * FROM images WHERE "+condition+
		" ORDER BY id DESC LIMIT ? OFFSET ?", append(args, f.Limit, f.Offset.Offset)...)
}

// ResolveImage returns the name at the daemon of the image that a VM of a tenant is to be made of. name is
// that of an image of the tenant, of a shared one, or one at the daemon that this service did not make.
func (s *Store) ResolveImage(ctx context.Context, tenant, name string) (string, error) {
	var found []Image
	err := s.db.Select(ctx, &found, "SELECT * FROM images WHERE catalog_name IN (?, ?) ORDER BY id DESC",
		CatalogName(tenant, name), name)
	if err != nil {
		return "", err
	}
	var pending *Image
	hidden := false // the daemon may have it, but it is another tenant's
	// The tenant's own come first.
	for _, wanted := range []string{CatalogName(tenant, name), name} {
		for k := range found {
			i := &found[k]
			switch {
			case i.Catalog != wanted:
			case !i.seenBy(tenant) && !caller.From(ctx).SeesAll():
				hidden = hidden || i.State == ImageCompleted || !i.State.Ended() || i.Uploading
			case i.State == ImageCompleted:
				return i.Catalog, nil
			case pending == nil:
				pending = i
			}
		}
	}
	switch {
	case pending != nil && !pending.State.Ended():
		return "", fault.New(fault.Conflict, "image: %s is %s; wait for its job %s", name, pending.State, pending.Job).
			WithCode("image_not_ready")
	case hidden:
		return "", fault.InvalidField("image", "there is no image %q", name)
	}
	if len(found) == 0 {
		return name, s.checkForeignImage(ctx, tenant, name)
	}
	return name, nil
}

// checkForeignImage fails if a name at the daemon is that of another tenant's image that this service does not
// know, for example because its database was lost.
func (s *Store) checkForeignImage(ctx context.Context, tenant, name string) error {
	of, _, qualified := strings.Cut(name, ":")
	if !qualified || of == tenant || caller.From(ctx).SeesAll() {
		return nil
	}
	var exists bool
	err := s.db.Get(ctx, &exists, `SELECT EXISTS (SELECT 1 FROM tenants WHERE name = ?)
		OR EXISTS (SELECT 1 FROM retired_tenants WHERE name = ?)`, of, of)
	if err == nil && exists {
		err = fault.InvalidField("image", "there is no image %q", name)
	}
	return err
}

// CheckImage fails if the image that a VM is to be made of is another tenant's, unless whoever made the VM sees
// all of them.
func (s *Store) CheckImage(ctx context.Context, r *VM) error {
	if r.Spec.V.AnyImage || r.Spec.V.Image == "" {
		return nil
	}
	var found []Image
	if err := s.db.Select(ctx, &found, "SELECT * FROM images WHERE catalog_name = ?", r.Spec.V.Image); err != nil {
		return err
	}
	if len(found) > 0 && !slices.ContainsFunc(found, func(i Image) bool { return i.seenBy(r.Tenant) }) {
		return fault.InvalidField("image", "there is no image %q", r.Spec.V.Image)
	}
	return nil
}

// usersOfImage returns the names of VMs in the caller's scope that were made of an image, at most limit, and
// how many others there are.
func usersOfImage(
	ctx context.Context, q db.Querier, catalog string, limit int,
) (names []string, others int, err error) {
	text, err := json.Marshal(catalog) // as in the column
	if err != nil {
		return nil, 0, err
	}
	// Names of images have underscores, which LIKE takes for any character, so the specs are compared, too.
	var rows []struct {
		Name   string        `db:"name"`
		Tenant string        `db:"tenant"`
		Spec   db.JSON[Spec] `db:"spec"`
		CD     string        `db:"cd"`
	}
	if err := q.Select(ctx, &rows, `SELECT name, tenant, spec, cd FROM vms
		WHERE deleted_at IS NULL AND (spec LIKE ? OR cd = ?) ORDER BY name`, `%"image":`+string(text)+`%`, catalog); err != nil {
		return nil, 0, err
	}
	for _, r := range rows {
		switch {
		case r.Spec.V.Image != catalog && r.CD != catalog:
		case caller.From(ctx).Sees(r.Tenant) && len(names) < limit:
			names = append(names, r.Name)
		default:
			others++
		}
	}
	return names, others, nil
}

// changeImage changes an image under a lock. It fails with NotFound if there is none.
func (s *Store) changeImage(
	ctx context.Context, id string, change func(tx *db.Tx, i *Image) error,
) (i Image, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		condition, args := imageScope(caller.From(ctx)).And("id = ?", id).SQL()
		err := tx.Get(ctx, &i, "SELECT * FROM images WHERE "+condition+tx.ForUpdate(), args...)
		if err := db.NotFound(err, "there is no such image"); err != nil {
			return err
		}
		if err := change(tx, &i); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE images SET state = ?, uploading = ?, error = ?, size = ?, virtual_size = ?, sha256 = ?,
			job_id = ?, started_at = ?, completed_at = ? WHERE id = ?`, i.State, i.Uploading, i.Error, i.Size,
			i.VirtualSize, i.SHA256, i.Job, i.StartedAt, i.CompletedAt, i.ID)
		return err
	})
	return i, err
}

// StartImage stores that the job of an image works. It reports false if the image has ended.
func (s *Store) StartImage(ctx context.Context, id string) (i Image, goes bool, err error) {
	i, err = s.changeImage(ctx, id, func(_ *db.Tx, i *Image) error {
		if goes = !i.State.Ended(); goes {
			i.State, i.StartedAt = workStates[i.Origin], db.At(s.now())
		}
		return nil
	})
	return i, goes, err
}

// UploadImage stores that the daemon is about to get the image.
func (s *Store) UploadImage(ctx context.Context, id string) error {
	_, err := s.changeImage(ctx, id, func(_ *db.Tx, i *Image) error {
		i.Uploading = true
		return nil
	})
	return err
}

// EndImage stores the end of an image's job. Of state completed, it takes what is known of the disk.
func (s *Store) EndImage(ctx context.Context, end Image) error {
	_, err := s.changeImage(ctx, end.ID, func(_ *db.Tx, i *Image) error {
		if i.State.Ended() {
			return nil
		}
		i.State, i.Error, i.Uploading, i.CompletedAt = end.State, end.Error, end.Uploading, db.At(s.now())
		if end.State == ImageCompleted {
			i.Size, i.VirtualSize, i.SHA256 = end.Size, end.VirtualSize, end.SHA256
		}
		return nil
	})
	if fault.Is(err, fault.NotFound) {
		return nil // it was deleted meanwhile
	}
	return err
}

// ResizeImage checks that an image can be resized, and begins the job, whose id begin returns. Only those
// who own the image may.
func (s *Store) ResizeImage(
	ctx context.Context, id string, size int64, begin func(tx *db.Tx, i *Image) (job string, err error),
) (Image, error) {
	return s.changeImage(ctx, id, func(tx *db.Tx, i *Image) (err error) {
		switch {
		case !caller.From(ctx).Sees(i.Tenant):
			return fault.New(fault.Denied, "the image is shared by all tenants; only an admin without a tenant may resize it")
		case i.State != ImageCompleted:
			return fault.New(fault.Conflict, "the image is %s", i.State)
		case i.Kind != ImageDisk:
			return fault.New(fault.Conflict, "the image is an installation medium, and has no disk to resize")
		case size < i.VirtualSize:
			return fault.InvalidField("size_gb", "the disk has %d bytes already; it can only grow", i.VirtualSize)
		}
		if i.Job, err = begin(tx, i); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: JobImageResize, Target: i.ID, Tenant: i.Tenant, Message: i.Name})
	})
}

// Resized stores what the daemon tells about the disk of a resized image.
func (s *Store) Resized(ctx context.Context, id string, size, virtualSize int64) error {
	_, err := s.changeImage(ctx, id, func(_ *db.Tx, i *Image) error {
		i.Size, i.VirtualSize = size, virtualSize
		return nil
	})
	return err
}

// mostUsers is how many VMs the refusal to delete an image names.
const mostUsers = 10

// DeletableImage returns an image that may be deleted: no job makes it, and no VM was made of it. It writes
// the audit entry, since what follows cannot be undone.
func (s *Store) DeletableImage(ctx context.Context, id string) (Image, error) {
	return s.changeImage(ctx, id, func(tx *db.Tx, i *Image) error {
		if !caller.From(ctx).Sees(i.Tenant) {
			return fault.New(fault.Denied, "the image is shared by all tenants; only an admin without a tenant may delete it")
		}
		if !i.State.Ended() {
			return fault.New(fault.Conflict, "the image is %s; cancel its job %s first", i.State, i.Job)
		}
		if i.State == ImageCompleted {
			users, others, err := usersOfImage(ctx, tx, i.Catalog, mostUsers)
			if err != nil {
				return err
			}
			if others > 0 {
				users = append(users, fmt.Sprintf("and %d more", others))
			}
			if len(users) > 0 {
				return fault.New(fault.Conflict, "VMs were made of the image: %s; delete them first",
					strings.Join(users, ", ")).WithCode("image_in_use")
			}
		}
		return s.note(ctx, tx, audit.Entry{Action: "image.delete", Target: i.ID, Tenant: i.Tenant, Message: i.Name})
	})
}

// RemoveImage forgets an image that the daemon does not have any more.
func (s *Store) RemoveImage(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM image_logs WHERE image_id = ?", id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM images WHERE id = ?", id)
		return err
	})
}

// tenantHasNoImages fails if a tenant has images.
func tenantHasNoImages(ctx context.Context, tx *db.Tx, tenant string) error {
	var images int
	if err := tx.Get(ctx, &images, "SELECT COUNT(*) FROM images WHERE tenant = ?", tenant); err != nil {
		return err
	}
	if images > 0 {
		return fault.New(fault.Conflict, "tenant %s has %d images; delete them first", tenant, images)
	}
	return nil
}

// Orphans lists images that are not finished, although their jobs are: those used up their attempts, or
// were cancelled, without storing an end.
func (s *Store) Orphans(ctx context.Context) (all []Image, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM images WHERE completed_at IS NULL AND NOT EXISTS
		(SELECT 1 FROM jobs WHERE jobs.id = job_id AND jobs.finished_at IS NULL)`)
}
