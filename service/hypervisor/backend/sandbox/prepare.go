package sandbox

import (
	"os"
	"path"
	"strings"
)

// Prepare creates the mount points of sandboxes in a root file system that they will share.
// Otherwise gVisor would create missing ones in the shared folder when a sandbox starts. Existing
// files are kept. It fails if a link at such a place leads out of the root file system.
func Prepare(root *os.Root) error {
	for _, folder := range []string{"dev", "proc", "sys", "tmp"} {
		if err := root.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{guestAgent, guestSecret} {
		name := strings.TrimPrefix(file, "/")
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
