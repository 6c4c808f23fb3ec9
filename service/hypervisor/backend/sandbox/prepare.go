package sandbox

import (
	"os"
	"path"
	"strings"
)

// Prepare makes in a root file system, which sandboxes are to share, what their mounts come to lie
// on. gVisor would make what is missing when a sandbox starts, in the folder that all share. What is
// there stays as it is. A root file system in which a link leads out of it, where such a place should
// be, is refused.
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
