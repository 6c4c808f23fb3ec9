package image

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the settings and dependencies of a Manager.
type Config struct {
	Store  *record.Store
	Driver *driver.Driver
	Jobs   *job.Runner
	Log    *slog.Logger
	Now    func() time.Time

	Folder  string        // for the work; made if it is missing
	Builds  int           // how many images are made at once
	MaxSize int64         // of an image, in bytes; twice as much of the folder may be used while one is made
	MaxTime time.Duration // that an image may take
	Pause   time.Duration // before a failed download is tried again; it is doubled each time
	// Agent returns the path of the guest agent's program, or "" if there is none.
	Agent func() string
	// PackageMirrors and DownloadMirrors replace where things come from, by distribution.
	PackageMirrors, DownloadMirrors map[string]string
	AllowPrivate                    bool     // downloads may come from private addresses
	ImportFolders                   []string // below which files may be imported
}

// Manager makes images.
type Manager struct {
	cfg Config
	// Builds take a processor each; what is fetched mostly waits.
	builds, fetches *turns
}

// New returns a Manager, registers its kinds of jobs, and removes what an earlier process has left.
func New(ctx context.Context, c Config) (*Manager, error) {
	m := &Manager{cfg: c, builds: newTurns(c.Builds), fetches: newTurns(fetchesAtOnce)}
	for kind, make := range map[string]func(ctx context.Context, w *work) (string, error){
		record.JobImageBuild: m.build, record.JobImageDownload: m.download, record.JobImageImport: m.importFile,
	} {
		job.Register(m.cfg.Jobs, kind, job.Kind[args]{
			Run: func(ctx context.Context, a args, progress func(float64)) error {
				return m.run(ctx, a, progress, kind == record.JobImageBuild, make)
			},
			Cancelled: m.cancelled,
		})
	}
	job.Register(m.cfg.Jobs, record.JobImageResize, job.Kind[resizeArgs]{Run: m.resize})
	if err := claim(c.Folder); err != nil {
		return nil, err
	}
	return m, m.clear(ctx)
}

// claim makes the folder for the work, which tools must be able to reach and only this account may change.
func claim(folder string) error {
	const mode = 0o711
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil { //nolint:gosec // tools reach what is below
		return err
	}
	if err := os.Mkdir(folder, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(stat.Uid) != os.Geteuid() {
		return fault.InvalidField("image-folder", "%s is not a folder of this service's account", folder)
	}
	return os.Chmod(folder, mode) //nolint:gosec // tools reach what is below, and cannot list it
}

// clear removes what an earlier process has left. What downloads have so far is kept.
func (m *Manager) clear(ctx context.Context) error {
	entries, err := os.ReadDir(m.cfg.Folder)
	for _, e := range entries {
		i, getErr := m.cfg.Store.Image(caller.ByItself(ctx), e.Name())
		if getErr == nil && !i.State.Ended() && i.Origin == record.JobImageDownload {
			continue
		}
		err = errors.Join(err, remove(filepath.Join(m.cfg.Folder, e.Name())))
	}
	return err
}

// args are the arguments of a job that makes an image.
type args struct {
	Image string `json:"image"`
	Actor string `json:"actor"`
}

// work is an image that is being made.
type work struct {
	image    record.Image
	folder   string
	log      *logger
	progress func(float64)
}

// run runs a tool for the work.
func (w *work) run(ctx context.Context, t tool) error {
	err := t.run(ctx, w.log)
	if err != nil && w.log.isFull() {
		return errors.Join(syscall.ENOSPC, err)
	}
	return err
}

// Request is an image to make.
type Request struct {
	Name string
	// Tenant is whose it is, for callers without a tenant; empty: all tenants share it.
	Tenant string
	Spec   record.ImageSpec
}

// Build begins to build an image.
func (m *Manager) Build(ctx context.Context, r Request) (record.Image, error) {
	if err := m.checkBuild(&r.Spec); err != nil {
		return record.Image{}, err
	}
	return m.begin(ctx, record.JobImageBuild, r)
}

// begin stores an image with its job.
func (m *Manager) begin(ctx context.Context, kind string, r Request) (record.Image, error) {
	c := caller.From(ctx)
	i := record.Image{
		ID: record.NewID(), Name: r.Name, Tenant: c.Tenant, Origin: kind, Kind: record.ImageDisk,
		Spec: db.JSON[record.ImageSpec]{V: r.Spec},
	}
	if r.Spec.Format == record.ImageISO {
		i.Kind = record.ImageISO
	}
	if r.Tenant != "" && r.Tenant != c.Tenant {
		if !c.SeesAll() {
			return i, fault.New(fault.Denied, "tenant: is not the tenant of your token")
		}
		if err := record.CheckTenant("tenant", r.Tenant); err != nil {
			return i, err
		}
		i.Tenant = r.Tenant
	}
	i.Shared = c.SeesAll() && i.Tenant == ""
	// The daemon has images that this service did not make. Whoever is first has the name.
	taken, err := m.cfg.Driver.HasImage(ctx, record.CatalogName(i.Tenant, i.Name))
	if err != nil {
		return i, err
	}
	if taken {
		return i, fault.New(fault.Conflict, "there is an image named %s already", i.Name).WithCode("image_name_taken")
	}
	return m.cfg.Store.AddImage(ctx, i, func(tx *db.Tx) (string, error) {
		j := record.Job{Operation: operation.Operation{Kind: kind, Tenant: i.Tenant}}
		err := m.cfg.Jobs.Begin(ctx, tx, &j, args{Image: i.ID, Actor: c.Person()})
		return j.ID, err
	})
}

// run is the job that makes an image. make returns the path of the disk.
func (m *Manager) run(
	ctx context.Context, a args, progress func(float64), builds bool,
	make func(ctx context.Context, w *work) (string, error),
) error {
	ctx = caller.Acting(ctx, a.Actor)
	tenant, err := m.tenantOf(ctx, a.Image)
	if err != nil {
		return err
	}
	turn := m.fetches
	if builds {
		turn = m.builds
	}
	leave, err := turn.take(ctx, tenant)
	if err != nil {
		return m.end(ctx, record.Image{ID: a.Image}, err)
	}
	defer leave()
	i, goes, err := m.cfg.Store.StartImage(ctx, a.Image)
	if fault.Is(err, fault.NotFound) || err == nil && !goes {
		return nil // it has ended, and its end was stored before the service ended
	}
	if err != nil {
		return err
	}
	done, err := m.make(ctx, i, progress, make)
	if err != nil {
		return m.end(ctx, i, err)
	}
	done.ID, done.State = i.ID, record.ImageCompleted
	progress(1)
	return m.cfg.Store.EndImage(context.WithoutCancel(ctx), done)
}

// fetchesAtOnce is how many images are downloaded or imported at once.
const fetchesAtOnce = 4

// tenantOf returns whose image it is, or "" if it is gone.
func (m *Manager) tenantOf(ctx context.Context, id string) (string, error) {
	i, err := m.cfg.Store.Image(ctx, id)
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return i.Tenant, err
}

// make makes an image in a folder of its own, and puts it into the catalog.
func (m *Manager) make(
	ctx context.Context, i record.Image, progress func(float64), make func(ctx context.Context, w *work) (string, error),
) (out record.Image, err error) {
	w := &work{image: i, folder: filepath.Join(m.cfg.Folder, i.ID), progress: progress}
	resumed := i.Origin == record.JobImageDownload
	if !resumed {
		err = remove(w.folder)
	}
	if err == nil {
		err = os.MkdirAll(w.folder, 0o711) //nolint:gosec // tools reach what is below
	}
	if err != nil {
		return out, storage(err)
	}
	w.log = newLogger(ctx, func(text string) error {
		return m.cfg.Store.AppendImageLog(context.WithoutCancel(ctx), i.ID, text)
	})
	defer func() {
		switch {
		case err != nil && job.BrokenOff(ctx):
			w.log.say("Interrupted: the service ends. The job is repeated")
		case err != nil && errors.Is(ctx.Err(), context.Canceled):
			w.log.say("Cancelled")
		case err != nil:
			w.log.say("%s", fault.From(err).Message)
		}
		err = errors.Join(err, w.log.close())
		if !resumed || !job.BrokenOff(ctx) {
			err = errors.Join(err, remove(w.folder))
		}
	}()
	limited, stop := context.WithTimeoutCause(ctx, m.cfg.MaxTime, fault.New(fault.Unavailable,
		"the image was not made within %s, which the setting image-max-time allows", m.cfg.MaxTime).WithCode("image_timeout"))
	defer stop()
	watched, release := m.guard(limited, w.folder)
	defer release()
	path, err := make(watched, w)
	if err != nil {
		if cause := context.Cause(watched); cause != nil && !errors.Is(err, cause) {
			err = cause
		}
		return out, storage(err)
	}
	w.log.say("Giving the image to the hypervisor daemon as %s", i.Catalog)
	out, err = m.put(ctx, i, path)
	if err == nil {
		w.log.say("Completed")
	}
	return out, err
}

// guard returns a context that ends when the folder of an image takes more than is allowed.
func (m *Manager) guard(ctx context.Context, folder string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	const every = 2 * time.Second
	done := routine.Start(m.cfg.Log, "size of an image's folder", func() error {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				// There is a folder, a disk, and the disk in another format.
				if usage(folder) > 2*m.cfg.MaxSize {
					cancel(fault.New(fault.Invalid, "the image takes more room than the setting image-max-gib allows").
						WithCode("image_too_large"))
				}
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		if err := <-done; err != nil {
			m.cfg.Log.Warn("the size of an image's folder was not watched", "error", err)
		}
	}
}

// put gives a file to the daemon's catalog.
func (m *Manager) put(ctx context.Context, i record.Image, path string) (out record.Image, err error) {
	if i.Uploading { // an earlier attempt was interrupted
		if err := m.cfg.Driver.RemoveImage(ctx, i.Catalog); err != nil {
			return out, err
		}
	}
	if err := m.cfg.Store.UploadImage(ctx, i.ID); err != nil {
		return out, err
	}
	made, err := m.cfg.Driver.PutImage(ctx, i.Catalog, func() (io.ReadCloser, error) { return openDisk(i.Origin, path) })
	return record.Image{Size: made.Size, VirtualSize: made.VirtualSize, SHA256: made.SHA256}, err
}

// openDisk opens the file that a job has made.
func openDisk(origin, path string) (*os.File, error) {
	if origin == record.JobImageBuild {
		return owned(path, os.O_RDONLY)
	}
	return os.Open(path) //nolint:gosec // in a folder that only this service writes to
}

// end stores why an image was not made. If the service ends, the job is repeated.
func (m *Manager) end(ctx context.Context, i record.Image, err error) error {
	if job.BrokenOff(ctx) {
		return err
	}
	end := record.Image{ID: i.ID, State: record.ImageFailed, Error: fault.From(err).Message}
	if ctx.Err() != nil {
		end.State, end.Error = record.ImageCancelled, ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	stored, getErr := m.cfg.Store.Image(ctx, i.ID)
	if getErr == nil && stored.Uploading && !stored.State.Ended() {
		// What of it is in the catalog is nobody's. If it cannot be removed now, deleting the image does it.
		if removeErr := m.cfg.Driver.RemoveImage(ctx, stored.Catalog); removeErr != nil {
			end.Uploading = true
			m.cfg.Log.Warn("an unfinished image is left at the hypervisor daemon", "image", stored.Catalog, "error", removeErr)
		}
	}
	if storeErr := m.cfg.Store.EndImage(ctx, end); storeErr != nil {
		m.cfg.Log.Error("the end of an image was not stored", "image", i.ID, "error", storeErr)
	}
	return err
}

// cancelled ends an image whose job was cancelled before it ran.
func (m *Manager) cancelled(ctx context.Context, a args) error {
	ctx = caller.ByItself(ctx)
	if err := remove(filepath.Join(m.cfg.Folder, a.Image)); err != nil {
		return err
	}
	return m.cfg.Store.EndImage(ctx, record.Image{ID: a.Image, State: record.ImageCancelled})
}

// Sweep ends images whose jobs have ended without them, for example those that were interrupted too often.
func (m *Manager) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	orphans, err := m.cfg.Store.Orphans(ctx)
	for k := range orphans {
		err = errors.Join(err, remove(filepath.Join(m.cfg.Folder, orphans[k].ID)))
		_ = m.end(ctx, orphans[k], fault.New(fault.Unavailable, "the job was interrupted too often, or when it was cancelled")) // it returns its argument
	}
	return err
}

// Delete removes an image from the catalog and forgets it.
func (m *Manager) Delete(ctx context.Context, id string) error {
	i, err := m.cfg.Store.DeletableImage(ctx, id)
	if err != nil {
		return err
	}
	if i.State == record.ImageCompleted || i.Uploading {
		if err := m.cfg.Driver.RemoveImage(ctx, i.Catalog); err != nil {
			return err
		}
	}
	if err := m.cfg.Store.RemoveImage(ctx, id); err != nil {
		return err
	}
	if err := m.cfg.Driver.CleanImages(ctx); err != nil {
		m.cfg.Log.Warn("the room of a deleted image was not freed", "error", err)
	}
	return nil
}

// tooLarge returns the fault for a file that is larger than images may be.
func (m *Manager) tooLarge() error {
	return fault.New(fault.Invalid, "the file is larger than the %d GiB of the setting image-max-gib", m.cfg.MaxSize/gib).
		WithCode("image_too_large")
}

// storage returns the fault for a full disk, if an error says that.
func storage(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.Wrap(fault.StorageFailed, err, "the file system of the setting image-folder is full: free room on it, "+
			"or set image-folder to a folder on another one, and try again").WithCode("image_folder_full")
	}
	return err
}
