//go:build linux

package restsocket

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// Sweep ends the process recorded in a VM's folder, and processes that a daemon launched but did
// not record because it was killed. These have one of the folders as their working folder, and one
// of the arguments. A damaged record does not stop it.
func Sweep(folder string, folders, arguments []string) (damaged, err error) {
	noted, damaged := process.Find(folder)
	if noted != nil {
		if err := end(noted); err != nil {
			return nil, err
		}
	}
	var places []os.FileInfo
	for _, path := range folders {
		if info, err := os.Stat(path); err == nil {
			places = append(places, info)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return damaged, err
	}
	for _, path := range commands {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return damaged, err
		}
		raw, err := process.CommandLine(pid)
		if err != nil ||
			!slices.ContainsFunc(
				strings.Split(string(raw), "\x00"), func(a string) bool { return slices.Contains(arguments, a) },
			) {
			continue
		}
		// The link refers to the folder itself, even in a jail where paths differ.
		at, err := os.Stat(filepath.Join(filepath.Dir(path), "cwd"))
		if err != nil || !slices.ContainsFunc(places, func(p os.FileInfo) bool { return os.SameFile(p, at) }) {
			continue // it only looks like it
		}
		p, err := process.Hold(pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return damaged, err
		}
		if err := end(p); err != nil {
			return damaged, err
		}
	}
	return damaged, nil
}

// end kills a process and waits until it is gone.
func end(p *process.Process) error {
	if err := p.Kill(); err != nil {
		return errors.Join(err, p.Close())
	}
	<-p.Done()
	return p.Close()
}
