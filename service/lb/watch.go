package lb

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
)

const (
	// watchEvery is the time between two checks of the document. It polls because the file may be
	// replaced by renaming, or by moving a symbolic link as Kubernetes does, and the kernel's file
	// watches miss some of these changes. A stat costs next to nothing.
	watchEvery = time.Second
	// settledAfter is the minimum age of a modification time that proves that the file has not
	// changed since it was read. The clocks of file systems are coarse.
	settledAfter = 2 * time.Second
)

// watchedFile is the file with the configuration document, and the result of loading it.
type watchedFile struct {
	path    string
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	adopt   func(*configfile.Config) error

	mu       sync.Mutex
	loadedAt time.Time // when the current configuration was loaded
	err      error     // why the file in its present state was refused; nil if it is in use
	errAt    time.Time

	// The fields below are used only by the watcher.
	seen      fs.FileInfo // when the content was last read; nil if it must be read again
	content   [sha256.Size]byte
	candidate [sha256.Size]byte // changed content that was seen once
	loaded    [sha256.Size]byte // the content that was last loaded or refused
}

// begin loads the file for the first time.
func (d *watchedFile) begin() error {
	d.look()
	d.loaded = d.content
	return d.load()
}

// load reads the file and makes it the current configuration. If that fails, everything stays as it
// was.
func (d *watchedFile) load() error {
	var cfg *configfile.Config
	err := routine.Call(d.log, "document", func() (err error) {
		if cfg, err = configfile.Load(d.path); err != nil {
			return err
		}
		return d.adopt(cfg)
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.err, d.errAt = err, d.now()
		d.metrics.reloadOK.Set(0)
		if !d.loadedAt.IsZero() { // New reports the first error
			d.log.Error("the configuration is refused; the one before stays in force", "path", d.path, "error", err)
		}
		return err
	}
	d.err, d.errAt, d.loadedAt = nil, time.Time{}, d.now()
	d.metrics.reloadOK.Set(1)
	d.metrics.reloadedAt.Set(float64(d.loadedAt.UnixNano()) / 1e9)
	d.log.Info("configuration loaded", "path", d.path, "vips", len(cfg.VIPs))
	return nil
}

// state returns when the current configuration was loaded, and the error of the file in its present
// state.
func (d *watchedFile) state() (loadedAt time.Time, err error, errAt time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loadedAt, d.err, d.errAt
}

// watch loads the document when it has changed, and whenever reload receives a value, until ctx
// ends. Errors are kept in the state.
func (d *watchedFile) watch(ctx context.Context, reload <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			d.look() // so that the change is not found again
			d.loaded = d.content
			_ = d.load() // the error is kept in the state
		case <-tick.C:
			// A file that is being written has incomplete content, which may even be valid. Load
			// content only once two checks in a row have seen it.
			switch d.look(); {
			case d.content == d.loaded:
				d.candidate = d.loaded
			case d.content != d.candidate:
				d.candidate = d.content
			default:
				d.loaded = d.content
				_ = d.load() // the error is kept in the state
			}
		}
	}
}

// look updates content. A file that cannot be read has a content too, made from the error.
func (d *watchedFile) look() {
	info, err := os.Stat(d.path)
	if err != nil {
		d.seen, d.content = nil, sha256.Sum256([]byte("unreadable: "+err.Error()))
		return
	}
	if d.seen != nil && os.SameFile(d.seen, info) && d.seen.ModTime().Equal(info.ModTime()) &&
		d.seen.Size() == info.Size() {
		return
	}
	raw, err := document.Read(d.path, configfile.MaxFileSize)
	if err != nil {
		d.seen, d.content = nil, sha256.Sum256([]byte("unreadable: "+err.Error()))
		return
	}
	d.seen, d.content = nil, sha256.Sum256(raw)
	if d.now().Sub(info.ModTime()) > settledAfter {
		d.seen = info
	}
}
