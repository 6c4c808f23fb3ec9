//go:build linux

package firecracker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
)

// jailFile records in a VM's folder where its jail is, so that it is found even if the options
// change.
const jailFile = "jail"

// jail creates the jail of a VM and returns the program that runs p in it.
func (b *Backend) jail(s *backend.Spec, p restsocket.Program) (restsocket.Program, func(string) string, error) {
	binary, err := exec.LookPath(b.o.Jailer.Binary)
	if err != nil {
		return p, nil, err
	}
	// The jailer names the jail after the target of the program's path.
	program, err := filepath.EvalSymlinks(p.Path)
	if err != nil {
		return p, nil, err
	}
	if err := os.MkdirAll(b.o.Jailer.ChrootBase, 0o755); err != nil { //nolint:gosec // below it each has its own
		return p, nil, err
	}
	base, err := filepath.EvalSymlinks(b.o.Jailer.ChrootBase)
	if err != nil {
		return p, nil, err
	}
	folder := filepath.Join(base, filepath.Base(program), s.ID)
	// The record of an earlier start says what to remove.
	if err := removeJail(s); err != nil {
		return p, nil, err
	}
	if err := durable.Replace(filepath.Join(s.Folder, jailFile), []byte(folder), 0o600); err != nil {
		return p, nil, err
	}
	p.Root = filepath.Join(folder, rootFolder)
	if err := os.RemoveAll(folder); err != nil {
		return p, nil, err
	}
	if err := os.MkdirAll(p.Root, 0o755); err != nil { //nolint:gosec // the jailer gives it to the VM's user
		return p, nil, err
	}
	p.Path, p.Args = binary, jailerArgs(s, program, base)
	names, err := fill(s, p.Root)
	if err != nil {
		return p, nil, err
	}
	return p, func(path string) string { return names[path] }, nil
}

// rootFolder is the part of a jail that is the root folder of its Firecracker.
const rootFolder = "root"

// jailerArgs returns the jailer's command line. It does not daemonize, which would disconnect the
// console, nor create a PID namespace, which needs a second process.
func jailerArgs(s *backend.Spec, program, base string) []string {
	return append([]string{
		"--id", s.ID, "--exec-file", program, "--uid", strconv.Itoa(s.UID), "--gid", strconv.Itoa(s.GID),
		"--chroot-base-dir", base, "--",
	}, ownArgs()...)
}

// fill puts a VM's files into its jail and returns their paths there.
func fill(s *backend.Spec, root string) (map[string]string, error) {
	names := map[string]string{}
	for name, path := range map[string]string{"kernel": s.Kernel, "initrd": s.Initrd} {
		if path == "" {
			continue
		}
		if err := copyFile(path, filepath.Join(root, name), s.UID, s.GID); err != nil {
			return nil, err
		}
		names[path] = "/" + name
	}
	for i, d := range s.Disks {
		path, err := filepath.EvalSymlinks(d.Target)
		if err != nil {
			return nil, err
		}
		err = os.Link(path, filepath.Join(root, driveID(i)))
		if errors.Is(err, unix.EXDEV) {
			return nil, fault.Wrap(
				fault.Unavailable, err,
				"a disk of the VM is not on the file system of the jails (%s): put the jailer's chroot base on the disks' file system, or switch the jailer off",
				root,
			)
		}
		if err != nil {
			return nil, err
		}
		names[d.Target] = "/" + driveID(i)
	}
	return names, nil
}

// copyFile copies a read-only file for a user, by reflink where the file system supports it.
func copyFile(from, to string, uid, gid int) (err error) {
	in, err := os.Open(from) //nolint:gosec // the daemon's own, or checked
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil { //nolint:gosec // a file's number is small
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	return out.Chown(uid, gid)
}

// jailOf returns the folder of a VM's jail, or "" if it has none.
func jailOf(s *backend.Spec) (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.Folder, jailFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	folder := strings.TrimSpace(string(raw))
	if !filepath.IsAbs(folder) || filepath.Base(folder) != s.ID {
		return "", fmt.Errorf("%s does not say where the VM's jail is", filepath.Join(s.Folder, jailFile))
	}
	return folder, nil
}

// rootOf returns the parent of a VM's run folder.
func rootOf(s *backend.Spec) string {
	if folder, err := jailOf(s); err == nil && folder != "" {
		return filepath.Join(folder, rootFolder)
	}
	return s.Folder
}

// removeJail removes the jail of a VM without a process, and then its record.
func removeJail(s *backend.Spec) error {
	folder, err := jailOf(s)
	if err != nil || folder == "" {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return durable.Remove(filepath.Join(s.Folder, jailFile))
}
