package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/image"
)

// validateImages returns an error for settings of images that are not valid.
func (c *Config) validateImages() error {
	for setting, entries := range map[string][]string{
		"image-package-mirrors": c.ImagePackageMirrors, "image-download-mirrors": c.ImageDownloadMirrors,
	} {
		if _, err := image.ParseMirrors(setting, entries); err != nil {
			return err
		}
	}
	for _, folder := range c.ImageImportFolders {
		if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
			return fault.InvalidField("image-import-folders", "%q is not valid: it must be an absolute path without . and ..", folder)
		}
	}
	return nil
}

// imageFolder returns the folder in which images are made. The data folder would not do, since the tools run
// under ids that may not reach it.
func (c *Config) imageFolder() (string, error) {
	if c.ImageFolder != "" {
		return filepath.Abs(c.ImageFolder)
	}
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(data))
	const digits = 6
	return "/var/tmp/mainstay-images-" + hex.EncodeToString(sum[:digits]), nil
}

// imagePause is how long a failed download pauses first before it is tried again.
var imagePause = time.Second

// openImages creates the room of images.
func (s *Service) openImages(ctx context.Context) (err error) {
	c := image.Config{
		Store: s.store, Driver: s.driver, Jobs: s.jobs, Log: s.log, Now: s.now,
		Builds: s.cfg.ImageBuilds, MaxSize: int64(s.cfg.ImageMaxGiB) << 30, MaxTime: s.cfg.ImageMaxTime, Pause: imagePause,
		Agent: s.guestAgent, AllowPrivate: s.cfg.ImageDownloadPrivate, ImportFolders: s.cfg.ImageImportFolders,
	}
	if c.Folder, err = s.cfg.imageFolder(); err != nil {
		return err
	}
	if c.PackageMirrors, err = image.ParseMirrors("image-package-mirrors", s.cfg.ImagePackageMirrors); err != nil {
		return err
	}
	if c.DownloadMirrors, err = image.ParseMirrors("image-download-mirrors", s.cfg.ImageDownloadMirrors); err != nil {
		return err
	}
	s.images, err = image.New(ctx, c)
	return err
}

// guestAgent returns the path of the guest agent's program, or "" if there is none.
func (s *Service) guestAgent() string {
	if s.cfg.GuestAgent != "" {
		return s.cfg.GuestAgent
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "mainstay-guest")
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	if found, err := exec.LookPath("mainstay-guest"); err == nil {
		return found
	}
	return ""
}
